#pragma once

#include "ops/gemm/cpu/amx/register.h"

namespace tilewright::test {

/// The kernel file of the emulated tiles. Tests only.
const gemm_amx::TileOps& TileOpsEmulated();

/// The kernels of AMX, their tiles emulated, for any processor. Their ids end in ".emulated".
inline void AddEmulatedAmx(Registry& registry) {
  AddGemmAmx(registry, TileOpsEmulated(), 0, ".emulated");
}

}  // namespace tilewright::test
