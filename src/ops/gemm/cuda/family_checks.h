#pragma once

#include <cstdint>
#include <optional>

#include "artifact/spec_checks.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/rejection.h"

// What the families share.

namespace tilewright {

inline constexpr const char* kGemmMma = "gemm_mma";
inline constexpr const char* kGemmHopper = "gemm_hopper";
inline constexpr const char* kGemmSimt = "gemm_simt";
inline constexpr std::uint32_t kHopperTileK = 64;

/// Types and epilogue that the common epilogue serves: A and B of one 16-bit type, D bf16, f16 or
/// f32, C likewise with kAdd and none without; no split of k.
std::optional<Rejection> CheckGemmTypes(const KernelSpec& spec);

}  // namespace tilewright
