#include "ops/gemm/cpu/w8a8/epilogue.h"
#include "ops/gemm/cpu/w8a8/tile_products.h"

namespace tilewright::gemm_w8a8 {
namespace {
constexpr IsaOps kOps = {TILEWRIGHT_TU, PackRows<0>, MultiplyByTiles<AmxTiles>, FinishRows};
}  // namespace

const IsaOps& OpsAmx() { return kOps; }

}  // namespace tilewright::gemm_w8a8
