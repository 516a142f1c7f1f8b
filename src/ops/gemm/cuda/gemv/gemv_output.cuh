#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/gemv_params.h"

// What the kernels of this room have in common: the sums of warps that share rows of W become y.

namespace tw {

using tilewright::cuda::GemvParams;

/// Adds the parts of k of every row of the CTA, in the order of its warps, and stores. `partial`:
/// shared, [kWarps][kTileM][rows of a group]; all threads call it, behind a barrier.
template <Type kTypeC, Type kTypeY, int kSplit, int kWarps, int kTileM, int kRows>
TW_DEVICE void StoreSums(const GemvParams& p, const float (&partial)[kWarps][kTileM][kRows]) {
  constexpr int kTileN = kWarps / kSplit * kRows;
  const int n0 = static_cast<int>(blockIdx.x) * kTileN, m0 = static_cast<int>(blockIdx.y) * kTileM;
  for (int i = static_cast<int>(threadIdx.x); i < kTileM * kTileN; i += kWarps * 32) {
    const int m = i / kTileN, row = i % kTileN;
    if (m0 + m >= p.m || n0 + row >= p.n) continue;
    float sum = 0.0f;
    TW_UNROLL
    for (int s = 0; s < kSplit; ++s) sum += partial[row / kRows * kSplit + s][m][row % kRows];
    float value = p.alpha * sum;
    if constexpr (kTypeC != Type::kNone) {
      if (p.beta != 0.0f)
        value = Fma(p.beta, LoadElement<kTypeC>(p.c, (m0 + m) * p.ldc + n0 + row), value);
    }
    StoreElement<kTypeY>(p.y, (m0 + m) * p.ldy + n0 + row, value);
  }
}

}  // namespace tw
