#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/predicated.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/types.cuh"
#include "ops/gemm/cuda/tile_layout.h"
#include "tilewright/cuda/gemm_params.h"

// From accumulators to global memory, by way of shared memory: each warp stages what it has
// computed, already as elements of D, and whole lines are stored from there. mma.sync m16n8 and
// wgmma m64nN leave the same picture: with g = lane / 4 and t = lane % 4, a thread has columns
// 8j + 2t and 8j + 2t + 1 of rows g and g + 8 of a 16-row strip, in acc[4j .. 4j + 3].
//
// There are up to 128 accumulators a thread, and what is done to each of them is unrolled: it is
// kept to a few instructions, since compile time is theirs. All else is a loop.

namespace tw {

using tilewright::cuda::GemmOutput;

/// Whether lines of D can be stored 16 bytes at a time.
template <Type kTypeD>
TW_DEVICE bool StoresWide(const GemmOutput& out) {
  return (reinterpret_cast<u64>(out.d) % 16 |
          static_cast<u64>(out.ldd) * FloatBytes<kTypeD>() % 16) == 0;
}

/// One strip of 16 rows, 2 kCount columns of it: D = alpha * acc (+ beta * C unless kTypeC is
/// kNone) from (row0, col0) on goes to shared memory, to lines `line` to line + 15 of a tile with
/// lines of kChunks 16-byte chunks (TileOffset), from chunk `chunk` on. All lanes call it, also
/// those outside of m x n: what they stage is not stored.
template <Type kTypeC, Type kTypeD, int kChunks, int kCount>
TW_DEVICE void StageStrip(const GemmOutput& out, const float (&acc)[kCount], int row0, int col0,
                          u32 tile, int line, int chunk, int lane) {
  constexpr int kBlocks = kCount / 4;  // of eight columns
  const int t = lane % 4;
  TW_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int g = lane / 4 + 8 * half;
    float value[2 * kBlocks];
    TW_UNROLL
    for (int j = 0; j < kBlocks; ++j) {
      value[2 * j] = out.alpha * acc[4 * j + 2 * half];
      value[2 * j + 1] = out.alpha * acc[4 * j + 2 * half + 1];
    }
    if constexpr (kTypeC != Type::kNone) {
      constexpr int kPair = 2 * FloatBytes<kTypeC>();
      const int row = row0 + g;
      const int col = col0 + 2 * t;
      const char* c = static_cast<const char*>(out.c) + (row * out.ldc + col) * (kPair / 2);
      const bool wide = (reinterpret_cast<u64>(out.c) % kPair | static_cast<u64>(out.ldc) % 2) == 0;
      // Of this row from col on; with beta = 0 C is not read.
      const int left = row < out.m && out.beta != 0.0f ? out.n - col : 0;
      TW_UNROLL
      for (int j = 0; j < kBlocks; ++j) {
        float pair[2];
        LoadPairIf<kTypeC>(pair, c + 4 * j * kPair, left - 8 * j, wide);
        value[2 * j] += out.beta * pair[0];
        value[2 * j + 1] += out.beta * pair[1];
      }
    }
    TW_UNROLL
    for (int j = 0; j < kBlocks; ++j) {
      if constexpr (kTypeD == Type::kF32) {
        StoreShared8(tile + TileOffset(line + g, chunk + 2 * j + t / 2, kChunks) + t % 2 * 8,
                     BitsOf(value[2 * j]), BitsOf(value[2 * j + 1]));
      } else {
        StoreShared4(tile + TileOffset(line + g, chunk + j, kChunks) + t * 4,
                     PackPairOf<kTypeD>(value[2 * j], value[2 * j + 1]));
      }
    }
  }
}

/// Stores the first `left` (any number) of the elements in v, 16 bytes; at once if `wide`.
template <Type kTypeD>
TW_DEVICE void StoreChunk(char* at, u32 (&v)[4], int left, bool wide) {
  constexpr int kCount = 16 / FloatBytes<kTypeD>();
  if (wide && left >= kCount) {
    StoreGlobal16(at, v);
    return;
  }
  if (left > kCount) left = kCount;
  TW_NO_UNROLL
  for (; left > 0; --left) {
    // The lowest element, then the others move down.
    if constexpr (kTypeD == Type::kF32) {
      *reinterpret_cast<u32*>(at) = v[0];
      TW_UNROLL
      for (int i = 0; i < 3; ++i) v[i] = v[i + 1];
    } else {
      *reinterpret_cast<u16*>(at) = static_cast<u16>(v[0]);
      TW_UNROLL
      for (int i = 0; i < 3; ++i) v[i] = FunnelRight(v[i], v[i + 1], 16);
      v[3] >>= 16;
    }
    at += FloatBytes<kTypeD>();
  }
}

/// Stores a staged tile of kLines lines, of each the first kStored of kChunks chunks, as rows row0, ... of
/// D, from column col0 on, as far as it is inside of m x n. By `kThreads` threads, number `thread` of them; all have staged their part.
template <Type kTypeD, int kLines, int kChunks, int kThreads, int kStored = kChunks>
TW_DEVICE void StoreTile(const GemmOutput& out, int row0, int col0, u32 tile, int thread) {
  constexpr int kBytes = FloatBytes<kTypeD>();
  const bool wide = StoresWide<kTypeD>(out);
  TW_NO_UNROLL
  for (int i = thread; i < kLines * kStored; i += kThreads) {
    const int line = i / kStored;
    const int chunk = i % kStored;
    const int row = row0 + line;
    const int col = col0 + chunk * (16 / kBytes);
    const int left = row < out.m ? out.n - col : 0;
    u32 v[4];
    LoadShared16(v, tile + TileOffset(line, chunk, kChunks));
    StoreChunk<kTypeD>(static_cast<char*>(out.d) + (row * out.ldd + col) * kBytes, v, left, wide);
  }
}

}  // namespace tw
