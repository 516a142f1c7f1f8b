// A kernel file of tests: emulated tiles with the vectors of the real ones, for processors that have
// those without AMX. No product library contains it.

#include "ops/gemm/cpu/amx/vec_amx.h"
// vec_amx.h defines the vector type of what follows.
#include "ops/gemm/cpu/amx/emulated_kernels.h"
#include "ops/gemm/cpu/amx/panel_kernels.h"

namespace tilewright {
namespace gemm_amx {
namespace {
constexpr TileOps kOps = MakeTileOps<EmulatedTiles>("ops/gemm/cpu/amx/panels_amx.cc", AllBlocks{});
}  // namespace
}  // namespace gemm_amx

namespace test {
const gemm_amx::TileOps& TileOpsEmulatedVectors() { return gemm_amx::kOps; }
}  // namespace test
}  // namespace tilewright
