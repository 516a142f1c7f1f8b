#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/silu.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/gemv_params.h"

// How the sums of a tile in shared memory, or of those that CTAs left in the workspace, become y:
// of gemm_q, gemm_qw and gemm_qr, whose parameter blocks name what is read here alike.

namespace tw {

/// Stores four elements of row m of y from column n on, of which `left` are inside.
template <Type kTypeY, class Params>
TW_DEVICE void StoreFour(const Params& p, const float (&value)[4], int m, int n, int left,
                         bool packs) {
  if (packs && left >= 4) {
    StorePack<kTypeY, 4>(p.y, m * p.ldy + n, value);
  } else {
    TW_UNROLL
    for (int j = 0; j < 4; ++j)
      if (j < left) StoreElement<kTypeY>(p.y, m * p.ldy + n + j, value[j]);
  }
}

/// What is stored of four sums: times alpha, and the addend if there is one.
template <Type kTypeC, class Params>
TW_DEVICE void AddC(const Params& p, float (&value)[4], int m, int n, int left, bool packs) {
  float addend[4] = {};
  if (p.beta != 0.0f) {
    if (packs && left >= 4) {
      LoadPack<kTypeC, 4>(p.c, m * p.ldc + n, addend);
    } else {
      TW_UNROLL
      for (int j = 0; j < 4; ++j)
        if (j < left) addend[j] = LoadElement<kTypeC>(p.c, m * p.ldc + n + j);
    }
  }
  TW_UNROLL
  for (int j = 0; j < 4; ++j) value[j] = Fma(p.beta, addend[j], p.alpha * value[j]);
}

/// Makes y of the sums of a CTA's tile, which begins at row m0 of x and row n0 of W; `sums_at(m, n,
/// sum)` gives four of row m of the tile, from column n on. With the epilogue swiglu, rows of W are
/// blocks of gate and of up in turn.
template <Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM, int kTileN, int kThreads,
          class Params, class SumsAt>
TW_DEVICE void OutputTile(const Params& p, int m0, int n0, bool packs, SumsAt sums_at) {
  constexpr bool kGated = kEpilogue == Epilogue::kSwiGlu;
  constexpr int kBlock = tilewright::cuda::kGemvGatedBlock;
  constexpr int kFours = kTileN / (kGated ? 8 : 4);
  static_assert(!kGated || kTileN % (2 * kBlock) == 0, "whole pairs of gate and up");
  const int columns = kGated ? p.n / 2 : p.n, first = kGated ? n0 / 2 : n0;
  TW_NO_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < kTileM * kFours; i += kThreads) {
    const int m = i / kFours, n = i % kFours * 4;
    if (m0 + m >= p.m) break;
    const int left = columns - (first + n);
    float value[4];
    if constexpr (kGated) {
      const int gate = n / kBlock * (2 * kBlock) + n % kBlock;
      float up[4];
      sums_at(m, gate, value);
      sums_at(m, gate + kBlock, up);
      TW_UNROLL
      for (int j = 0; j < 4; ++j) value[j] = SiluOf(p.alpha * value[j]) * (p.alpha * up[j]);
    } else {
      sums_at(m, n, value);
      AddC<kTypeC>(p, value, m0 + m, n0 + n, left, packs);
    }
    StoreFour<kTypeY>(p, value, m0 + m, first + n, left, packs);
  }
}

/// Sums that Stage has put in place: of all warps that share the row of W.
template <int kTileM, int kParts, int kPitch>
struct StagedSums {
  static constexpr int kLine = kPitch;  // from a row of x to the next
  const float* sums;
  TW_DEVICE void operator()(int m, int n, float (&sum)[4]) const {
    LoadPack<Type::kF32, 4>(sums, m * kPitch + n, sum);
    TW_UNROLL
    for (int s = 1; s < kParts; ++s) {
      float more[4];
      LoadPack<Type::kF32, 4>(sums, (s * kTileM + m) * kPitch + n, more);
      TW_UNROLL
      for (int j = 0; j < 4; ++j) sum[j] += more[j];
    }
  }
};

/// Whether four elements of y, and of c, can be accessed at once.
template <Type kTypeC, Type kTypeY, class Params>
TW_DEVICE bool OutputInPacks(const Params& p) {
  bool packs = PacksAligned<kTypeY, 4>(p.y, p.ldy);
  if constexpr (kTypeC != Type::kNone) packs = packs && PacksAligned<kTypeC, 4>(p.c, p.ldc);
  return packs;
}

}  // namespace tw
