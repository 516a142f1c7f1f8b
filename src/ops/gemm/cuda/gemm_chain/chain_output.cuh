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
/// next product normalises it, the squares. There is one tile of x. Addends are loaded ahead, all at once: between
/// stores each is waited for. `kLoadsAtOnce`: kLoads of QwFinish.
template <int kTileM, int kTileN, int kThreads, int kLoadsAtOnce>
struct ChainOutput {
  static constexpr int kFours = kTileN / 4;
  static constexpr int kTurns = (kTileM * kFours + kThreads - 1) / kThreads;
  static constexpr int kLoads = kLoadsAtOnce;
  float addends[kTurns][4];

  TW_DEVICE static bool Packs(const GemmChainProduct& p) {
    return OutputInPacks<Type::kBF16, Type::kBF16>(p);
  }
  struct Place {
    int m, n, left;  // row, column in the tile, and columns from there on
    TW_DEVICE Place(const GemmChainProduct& p, int n0, int turn) {
      const int i = static_cast<int>(threadIdx.x) + turn * kThreads;
      m = i / kFours;
      n = i % kFours * 4;
      left = m < kTileM && m < p.m ? p.n - (n0 + n) : 0;
    }
  };
  TW_DEVICE void Load(const GemmChainProduct& p, int, int n0) {
    if (p.gated != 0) return;
    const bool packs = Packs(p);
    TW_UNROLL
    for (int turn = 0; turn < kTurns; ++turn) {
      const Place at(p, n0, turn);
      TW_UNROLL
      for (float& addend : addends[turn]) addend = 0.0f;
      if (p.beta == 0.0f) continue;
      const i64 from = at.m * p.ldc + n0 + at.n;
      if (packs && at.left >= 4) {
        LoadPack<Type::kBF16, 4>(p.c, from, addends[turn]);
      } else {
        TW_UNROLL
        for (int j = 0; j < 4; ++j)
          if (j < at.left) addends[turn][j] = LoadElement<Type::kBF16>(p.c, from + j);
      }
    }
  }
  template <class SumsAt>
  TW_DEVICE void Store(const GemmChainProduct& p, int m0, int n0, SumsAt sums_at,
                       float* sums) const {
    constexpr int kLine = SumsAt::kLine;
    const bool packs = Packs(p);
    if (p.gated != 0) {
      OutputTile<Type::kNone, Type::kBF16, Epilogue::kSwiGlu, kTileM, kTileN, kThreads>(
          p, m0, n0, packs, sums_at);
      return;
    }
    // Squares are put in place of a sum that this thread alone has read, and added in one order: of four
    // columns, of a lane's, of the warp, and of all tiles by who reads them.
    TW_UNROLL
    for (int turn = 0; turn < kTurns; ++turn) {
      const Place at(p, n0, turn);
      if (at.m >= kTileM || at.m >= p.m) break;
      float value[4], squares = 0.0f;
      sums_at(at.m, at.n, value);
      TW_UNROLL
      for (int j = 0; j < 4; ++j) {
        value[j] = RoundTo<Type::kBF16>(Fma(p.beta, addends[turn][j], p.alpha * value[j]));
        if (j < at.left) squares = Fma(value[j], value[j], squares);
      }
      StoreFour<Type::kBF16>(p, value, at.m, n0 + at.n, at.left, packs);
      if (p.squares_out != nullptr) sums[at.m * kLine + at.n] = squares;
    }
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
