#pragma once

#include <memory>

#include "ops/attention/cpu/layout.h"
#include "tilewright/attention.h"

namespace tilewright::attention {

/// The blocked kernels, one for each instruction set.
void AddTiledKernels(Registry& registry);
/// Who gets a kernel that rounds operands to bf16.
enum class Rounding {
  kAllowed,  ///< whose precision allows it, with kAuto where the cache holds less than f32
  kNamed,    ///< whose precision is kBF16
};
/// "attention.bf16.<isa>" with functions that round operands to bf16, which run on `features`.
std::unique_ptr<Kernel> MakeBF16Kernel(const char* isa, std::uint32_t features,
                                       const AttentionFunctions& functions, const char* tu,
                                       Rounding rounding = Rounding::kAllowed);

}  // namespace tilewright::attention
