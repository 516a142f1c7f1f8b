#pragma once

#include <cstdint>
#include <string_view>

#include "ops/gemm/cpu/amx/tile_ops.h"
#include "tilewright/gemm.h"

namespace tilewright {

/// Adds the kernels of bf16 tiles, one for each type of weights: those of `ops`, which need
/// `features`. `flag` ends their names. They live as long as `registry`.
void AddGemmAmx(Registry& registry, const gemm_amx::TileOps& ops, std::uint32_t features,
                std::string_view flag);

/// The same by the instructions, as they are offered.
void AddGemmAmx(Registry& registry);

}  // namespace tilewright
