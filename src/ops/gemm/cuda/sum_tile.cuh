#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/gemm/cuda/tile_layout.h"
#include "tilewright/cuda/gemm_params.h"

// The other end of an epilogue with C, for kernels that have room for the whole tile in f32: a loop
// over the tile instead of code for each accumulator.

namespace tw {

using tilewright::cuda::GemmOutput;

/// Four columns of a row of D from `column` on: value += beta * C, where C is read; of `left`
/// columns (any number) that are there. `packs`: C and D are aligned for four at a time.
template <Type kTypeC>
TW_DEVICE void AddAddend(const GemmOutput& out, float (&value)[4], i64 row, i64 column, int left,
                         bool packs) {
  if (out.beta == 0.0f) return;
  float addend[4] = {};
  if (packs && left >= 4) {
    LoadPack<kTypeC, 4>(out.c, row * out.ldc + column, addend);
  } else {
    TW_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (i < left) addend[i] = LoadElement<kTypeC>(out.c, row * out.ldc + column + i);
    }
  }
  TW_UNROLL
  for (int i = 0; i < 4; ++i) value[i] += out.beta * addend[i];
}

/// Stores a tile of f32, kLines lines of kChunks 16-byte chunks in shared memory (TileOffset), plus
/// beta * C as rows row0, ... of D, from column col0 on, as far as it is inside of m x n. By
/// `kThreads` threads, number `thread` of them; all have staged their part. C may be D: each
/// element is read and written by one thread.
template <Type kTypeC, Type kTypeD, int kLines, int kChunks, int kThreads>
TW_DEVICE void StoreSum(const GemmOutput& out, int row0, int col0, u32 tile, int thread) {
  // Of a thread at a time: their loads of C are under way together.
  constexpr int kTogether = kLines * kChunks / kThreads < 4 ? kLines * kChunks / kThreads : 4;
  static_assert(kLines * kChunks % (kThreads * kTogether) == 0, "a whole number of rounds");
  const bool packs =
      PacksAligned<kTypeC, 4>(out.c, out.ldc) && PacksAligned<kTypeD, 4>(out.d, out.ldd);
  TW_NO_UNROLL
  for (int first = thread; first < kLines * kChunks; first += kThreads * kTogether) {
    float value[kTogether][4];
    TW_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      const int line = (first + i * kThreads) / kChunks;
      const int chunk = (first + i * kThreads) % kChunks;
      const int left = row0 + line < out.m ? out.n - col0 - 4 * chunk : 0;
      u32 word[4];
      LoadShared16(word, tile + TileOffset(line, chunk, kChunks));
      TW_UNROLL
      for (int j = 0; j < 4; ++j) value[i][j] = FloatOf(word[j]);
      AddAddend<kTypeC>(out, value[i], row0 + line, col0 + 4 * chunk, left, packs);
    }
    TW_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      const int line = (first + i * kThreads) / kChunks;
      const int chunk = (first + i * kThreads) % kChunks;
      const int left = row0 + line < out.m ? out.n - col0 - 4 * chunk : 0;
      const i64 at = (row0 + line) * out.ldd + col0 + 4 * chunk;
      if (packs && left >= 4) {
        StorePack<kTypeD, 4>(out.d, at, value[i]);
      } else {
        TW_UNROLL
        for (int j = 0; j < 4; ++j) {
          if (j < left) StoreElement<kTypeD>(out.d, at + j, value[i][j]);
        }
      }
    }
  }
}

}  // namespace tw
