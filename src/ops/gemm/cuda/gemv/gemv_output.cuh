#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/silu.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/gemv_params.h"

// What the kernels of this room have in common: the sums of warps that share rows of W become y.

namespace tw {

using tilewright::cuda::GemvParams;

/// Adds the parts of k of every row of the CTA, in the order of its warps, and stores to rows m0 and
/// on. `partial`: shared, [kWarps][kTileM][rows of a group]; all threads call it, behind a barrier.
template <Type kTypeC, Type kTypeY, int kSplit, Epilogue kEpilogue = Epilogue::kNone, int kWarps,
          int kTileM, int kRows>
TW_DEVICE void StoreSums(const GemvParams& p, int m0,
                         const float (&partial)[kWarps][kTileM][kRows]) {
  constexpr int kTileN = kWarps / kSplit * kRows;
  constexpr bool kGated = kEpilogue == Epilogue::kSwiGlu;
  constexpr int kBlock = tilewright::cuda::kGemvGatedBlock;
  static_assert(!kGated || kTileN % (2 * kBlock) == 0, "whole pairs of gate and up");
  constexpr int kColumns = kGated ? kTileN / 2 : kTileN;  // of y
  const int n0 = static_cast<int>(blockIdx.x) * kColumns;
  for (int i = static_cast<int>(threadIdx.x); i < kTileM * kColumns; i += kWarps * 32) {
    const int m = i / kColumns, col = i % kColumns;
    if (m0 + m >= p.m || n0 + col >= (kGated ? p.n / 2 : p.n)) continue;
    const auto sum_of = [&](int row) {
      float sum = 0.0f;
      TW_UNROLL
      for (int s = 0; s < kSplit; ++s) sum += partial[row / kRows * kSplit + s][m][row % kRows];
      return p.alpha * sum;
    };
    const int row = kGated ? col / kBlock * (2 * kBlock) + col % kBlock : col;
    float value = sum_of(row);
    if constexpr (kGated) value = SiluOf(value) * sum_of(row + kBlock);
    if constexpr (kTypeC != Type::kNone) {
      if (p.beta != 0.0f)
        value = Fma(p.beta, LoadElement<kTypeC>(p.c, (m0 + m) * p.ldc + n0 + col), value);
    }
    StoreElement<kTypeY>(p.y, (m0 + m) * p.ldy + n0 + col, value);
  }
}

}  // namespace tw
