#pragma once

#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemm_q/output.cuh"
#include "tilewright/cuda/gemm_chain_params.h"

namespace tw {

using tilewright::cuda::GemmChainProduct;

/// How y of a product of a chain is made, as QwFinish asks for it: of gate and up, or with an addend and, where the
/// next product normalises it, the squares. There is one tile of x.
template <int kTileM, int kTileN, int kThreads>
struct ChainOutput {
  OutputAhead<Type::kBF16, Type::kBF16, kTileM, kTileN, kThreads> ahead;
  TW_DEVICE static bool Packs(const GemmChainProduct& p) {
    return OutputInPacks<Type::kBF16, Type::kBF16>(p);
  }
  TW_DEVICE void Load(const GemmChainProduct& p, int m0, int n0) {
    if (p.gated == 0) ahead.Load(p, m0, n0, Packs(p));
  }
  template <class SumsAt>
  TW_DEVICE void Store(const GemmChainProduct& p, int m0, int n0, SumsAt sums_at,
                       float* sums) const {
    constexpr int kFours = kTileN / 4, kLine = SumsAt::kLine;
    if (p.gated != 0) {
      OutputTile<Type::kNone, Type::kBF16, Epilogue::kSwiGlu, kTileM, kTileN, kThreads>(
          p, m0, n0, Packs(p), sums_at);
      return;
    }
    // Squares are put in place of a sum that this thread alone has read, and added in one order: of four
    // columns, of a lane's, of the warp, and of all tiles by who reads them.
    ahead.Store(p, m0, n0, Packs(p), sums_at, [&](int m, int n, const float(&value)[4], int left) {
      if (p.squares_out == nullptr) return;
      float squares = 0.0f;
      TW_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float stored = RoundTo<Type::kBF16>(value[j]);
        if (j < left) squares = Fma(stored, stored, squares);
      }
      sums[m * kLine + n] = squares;
    });
    if (p.squares_out == nullptr) return;
    NamedBarrier(1, kThreads);  // all squares are there
    const int lane = static_cast<int>(threadIdx.x) % 32;
    TW_NO_UNROLL
    for (int m = static_cast<int>(threadIdx.x) / 32; m < p.m; m += kThreads / 32) {
      float squares = 0.0f;
      TW_NO_UNROLL
      for (int four = lane; four < kFours; four += 32) squares += sums[m * kLine + 4 * four];
      squares = WarpSum(squares);
      if (lane == 0) p.squares_out[n0 / kTileN * kTileM + m] = squares;
    }
  }
};

}  // namespace tw
