#include "ops/gemm/cpu/amx/vec_amx.h"
// vec_amx.h defines the vector type of what follows.
#include "ops/gemm/cpu/amx/panel_kernels.h"

namespace tilewright::gemm_amx {
namespace {
constexpr TileOps kOps = MakeTileOps<AmxTiles>(TILEWRIGHT_TU, AllBlocks{});
}  // namespace

const TileOps& TileOpsAmx() { return kOps; }

}  // namespace tilewright::gemm_amx
