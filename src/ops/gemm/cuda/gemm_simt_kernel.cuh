#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/gemm_params.h"

// Products that no tensor core takes as they are: operands of two types, or of f32. Any shape,
// leading dimension and alignment: elements are read one by one, made f32, and multiplied by the
// CUDA cores. An element of D is summed by one thread over ascending k, so that it has the same
// bits in every tile and batch.

namespace tw {

using tilewright::cuda::GemmMmaParams;
using tilewright::cuda::GemmOutput;

/// The lines of an operand where they are.
struct OwnLines {
  TW_DEVICE i64 operator()(int line) const { return line; }
};

/// kLines lines of an operand, from line `first` and element k0 on, to shared memory with the lines
/// side by side: tile[k][line]. What is beyond `lines` or `k` is 0. place_of(line): which line of
/// memory it is. A line more than there is keeps
/// the stores of a warp, which differ in k, on different banks.
template <Type kType, int kThreads, int kLines, int kDepth, class PlaceOf>
TW_DEVICE void LoadSimtTile(const void* base, i64 ld, int first, int lines, int k0, int k,
                            PlaceOf place_of, float (&tile)[kDepth][kLines + 1]) {
  TW_UNROLL
  for (int i = 0; i < (kLines * kDepth + kThreads - 1) / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    const int line = at / kDepth, depth = at % kDepth;
    if (line >= kLines) continue;
    float value = 0.0f;
    if (first + line < lines && k0 + depth < k) {
      value = LoadElement<kType>(base, place_of(first + line) * ld + k0 + depth);
    }
    tile[depth][line] = value;
  }
}

/// The tile of D at row m0 and column n0. row_of(m): which row of A in memory is row m of the product.
template <class S, class RowOf>
TW_DEVICE void GemmSimtTile(const GemmMmaParams& p, int m0, int n0, RowOf row_of) {
  constexpr int kThreads = 32 * S::kWarps;
  // Threads along each side of the tile; a thread has every kAcross-th column and kDown-th row.
  constexpr int kAcross = S::kTileN / S::kCols, kDown = S::kTileM / S::kRows;
  constexpr int kDepthAtOnce = 8;
  static_assert(S::kTileK % kDepthAtOnce == 0, "whole steps");
  static_assert(kAcross * kDown == kThreads, "an output of the tile for every thread");
  __shared__ float a_tile[S::kTileK][S::kTileM + 1];
  __shared__ float b_tile[S::kTileK][S::kTileN + 1];

  const GemmOutput& out = p.out;
  const int across = static_cast<int>(threadIdx.x) % kAcross;
  const int down = static_cast<int>(threadIdx.x) / kAcross;

  float acc[S::kRows][S::kCols];
  TW_UNROLL
  for (int i = 0; i < S::kRows; ++i) {
    TW_UNROLL
    for (int j = 0; j < S::kCols; ++j) acc[i][j] = 0.0f;
  }
  TW_NO_UNROLL
  for (int k0 = 0; k0 < out.k; k0 += S::kTileK) {
    LoadSimtTile<S::kTypeA, kThreads, S::kTileM>(p.a, p.lda, m0, out.m, k0, out.k, row_of, a_tile);
    LoadSimtTile<S::kTypeB, kThreads, S::kTileN>(p.b, p.ldb, n0, out.n, k0, out.k, OwnLines{},
                                                 b_tile);
    __syncthreads();  // every thread reads what all have loaded
    // In steps: the whole depth of a tile unrolled would be four times the code.
    TW_NO_UNROLL
    for (int first = 0; first < S::kTileK; first += kDepthAtOnce) {
      TW_UNROLL
      for (int step = 0; step < kDepthAtOnce; ++step) {
        const int depth = first + step;
        float a[S::kRows], b[S::kCols];
        TW_UNROLL
        for (int i = 0; i < S::kRows; ++i) a[i] = a_tile[depth][down + i * kDown];
        TW_UNROLL
        for (int j = 0; j < S::kCols; ++j) b[j] = b_tile[depth][across + j * kAcross];
        TW_UNROLL
        for (int i = 0; i < S::kRows; ++i) {
          TW_UNROLL
          for (int j = 0; j < S::kCols; ++j) acc[i][j] = Fma(a[i], b[j], acc[i][j]);
        }
      }
    }
    __syncthreads();  // all have read before the next tiles are loaded
  }
  TW_UNROLL
  for (int i = 0; i < S::kRows; ++i) {
    const int row = m0 + down + i * kDown;
    TW_UNROLL
    for (int j = 0; j < S::kCols; ++j) {
      const int col = n0 + across + j * kAcross;
      if (row >= out.m || col >= out.n) continue;
      float value = out.alpha * acc[i][j];
      if constexpr (S::kTypeC != Type::kNone) {
        if (out.beta != 0.0f) {
          value = Fma(out.beta, LoadElement<S::kTypeC>(out.c, row * out.ldc + col), value);
        }
      }
      StoreElement<S::kTypeD>(out.d, row * out.ldd + col, value);
    }
  }
}

/// The whole kernel.
template <class S>
TW_DEVICE void GemmSimt(const GemmMmaParams& p) {
  // CTAs beside each other read the same columns of B.
  const int tiles_m = (p.out.m - 1) / S::kTileM + 1;
  const int tile = static_cast<int>(blockIdx.x);
  GemmSimtTile<S>(p, tile % tiles_m * S::kTileM, tile / tiles_m * S::kTileN, OwnLines{});
}

}  // namespace tw
