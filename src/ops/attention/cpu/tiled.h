#pragma once

#include <memory>

#include "ops/attention/cpu/layout.h"
#include "tilewright/attention.h"

namespace tilewright::attention {

/// The blocked kernels, one for each instruction set.
void AddTiledKernels(Registry& registry);
/// "attention.bf16.<isa>" with functions that round operands to bf16, which run on `features`.
std::unique_ptr<Kernel> MakeBF16Kernel(const char* isa, std::uint32_t features,
                                       const AttentionFunctions& functions, const char* tu);

}  // namespace tilewright::attention
