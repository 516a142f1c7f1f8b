#pragma once

#include "ops/gemm/cpu/amx/register.h"

namespace tilewright::test {

/// The kernel files of emulated tiles. Tests only.
const gemm_amx::TileOps& TileOpsEmulated();         ///< vectors in plain C++
const gemm_amx::TileOps& TileOpsEmulatedVectors();  ///< vectors of the real ones

inline constexpr const char* kEmulated = ".emulated";
inline constexpr const char* kEmulatedVectors = ".emulated512";

/// The kernels of AMX with emulated tiles, for any processor, and those with AVX-512 besides.
inline void AddEmulatedAmx(Registry& registry) {
  AddGemmAmx(registry, TileOpsEmulated(), 0, kEmulated);
  AddGemmAmx(registry, TileOpsEmulatedVectors(), kFeatureAvx512 | kFeatureAvx512Bf16,
             kEmulatedVectors);
}

}  // namespace tilewright::test
