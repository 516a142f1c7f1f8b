#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tilewright/kernel.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/types.h"

// What the check functions of kernel families say their refusals with.

namespace tilewright {

std::optional<Rejection> Reject(Reason reason, std::string have, std::string need);

/// nullopt when low <= have <= high, else a shape rejection that names the field.
std::optional<Rejection> CheckRange(const char* field, int have, int low, int high);
/// nullopt when `have` is one of `allowed`, else a shape rejection that names the field.
std::optional<Rejection> CheckOneOf(const char* field, int have, std::span<const int> allowed);

/// Shared memory a CTA may have on `arch`, bytes (CUDA programming guide, compute capabilities).
std::uint32_t MaxSmemBytes(CudaArch arch);

/// f32, bf16 or f16.
bool IsPlainFloat(DataType type);

}  // namespace tilewright
