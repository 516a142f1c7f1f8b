#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tilewright/kernel_family.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/rejection.h"
#include "tilewright/types.h"

// Helpers for the check functions of kernel families.

namespace tilewright {

std::optional<Rejection> Reject(Reason reason, std::string have, std::string need);

/// nullopt if low <= have <= high, else a shape rejection that names the field.
std::optional<Rejection> CheckRange(const char* field, int have, int low, int high);
/// nullopt if `have` is one of `allowed`, else a shape rejection that names the field.
std::optional<Rejection> CheckOneOf(const char* field, int have, std::span<const int> allowed);

/// nullopt for a spec of `family`.
std::optional<Rejection> CheckFamily(const KernelSpec& spec, const KernelFamily& family);

/// Maximum shared memory per CTA on `arch`, in bytes (CUDA programming guide, compute
/// capabilities).
std::uint32_t MaxSmemBytes(CudaArch arch);

/// f32, bf16 or f16.
bool IsPlainFloat(DataType type);
/// nullopt for plain floats, else a type rejection that names the field.
std::optional<Rejection> CheckPlainFloat(const char* field, DataType have);

// Kernels whose CTAs of `warps` warps process rows and use no dynamic shared memory.

/// Requires sm_80 or newer, 1 to 32 warps, and A and B row-major; checks nothing else.
std::optional<Rejection> CheckRowKernel(const KernelSpec& spec);
KernelLaunchShape LaunchRowKernel(const KernelSpec& spec);
/// Limits registers so that an SM (65,536 registers) can hold one CTA of any size.
ResourceLimits LimitRowKernel(const KernelSpec& spec);

}  // namespace tilewright
