#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tilewright/kernel_family.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/rejection.h"
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
/// nullopt for those, else a type rejection that names the field.
std::optional<Rejection> CheckPlainFloat(const char* field, DataType have);

// Kernels whose CTAs are `warps` warps over rows, without dynamic shared memory.

/// sm_80 or newer, 1 to 32 warps, A and B row-major; nothing else of the spec.
std::optional<Rejection> CheckRowKernel(const KernelSpec& spec);
KernelLaunchShape LaunchRowKernel(const KernelSpec& spec);
/// The registers of an SM (65,536) are enough for one CTA of any size.
ResourceLimits LimitRowKernel(const KernelSpec& spec);

}  // namespace tilewright
