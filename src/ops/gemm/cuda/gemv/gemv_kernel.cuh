#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemv/gemv_output.cuh"

// Few rows of x times a matrix of bf16, f16 or f32 weights: bound by reading the weights once. A warp
// owns kRows rows of W, or shares them with kSplit - 1 others that take other parts of k; its lanes
// read adjacent 16 bytes of a row, make f32 of them in registers and multiply by kTileM rows of x,
// which come from L1. Sums are f32: in every lane over ascending k, then over the lanes, then over
// the warps that share a row; the order depends on the spec, k and the alignment of the rows, and
// not on m: a row of y has the same bits in every batch of one kernel.

namespace tw {

/// Four adjacent elements of x.
template <Type kType>
TW_DEVICE void LoadActivations(const void* base, int at, float (&x)[4]) {
  if constexpr (kType == Type::kF32) {
    const U32x4 r = LoadCached16(static_cast<const float*>(base) + at);
    TW_UNROLL
    for (int j = 0; j < 4; ++j) x[j] = FloatOf(r.v[j]);
  } else {
    const U32x2 r = LoadCached8(static_cast<const u16*>(base) + at);
    x[0] = LowToF32<kType>(r.v[0]);
    x[1] = HighToF32<kType>(r.v[0]);
    x[2] = LowToF32<kType>(r.v[1]);
    x[3] = HighToF32<kType>(r.v[1]);
  }
}

template <Type kTypeX, Type kTypeW, int kTileM, int kRows>
struct GemvWarp {
  static constexpr int kPack = 16 / FloatBytes<kTypeW>();  // values of a load
  static constexpr int kPacksPerSpan = 32;

  const u8* x;        // the first of the rows of x
  int x_row[kTileM];  // elements from there to each row: half the registers of pointers
  const u8* w[kRows];
  int packs;  // of a row
  int lane;
  bool waits;  // for the kernels before this one, which write x, with its first loads under way
  float acc[kTileM][kRows];

  /// Spans `span` .. span + kUnroll - 1 of every row: all loads first, so that they are in flight
  /// together. One copy of this code serves the end of a row as well, at the price of a comparison
  /// for 64 multiply-adds or more: copies without it doubled the time to compile.
  template <int kUnroll>
  TW_DEVICE void Accumulate(int span) {
    const int first = span * kPacksPerSpan + lane;
    U32x4 raw[kUnroll][kRows];
    TW_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int pack = first + u * kPacksPerSpan;
      // Beyond the row the last pack is read again and not used: no load is conditional.
      const i64 at = static_cast<i64>(pack < packs ? pack : packs - 1) * 16;
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) raw[u][r] = LoadStream16(w[r] + at);
    }
    Wait();
    TW_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int pack = first + u * kPacksPerSpan;
      if (pack < packs) Multiply(raw[u], pack);
    }
  }

  TW_DEVICE void Wait() {
    if (waits) WaitForPrerequisites();
    waits = false;
  }

  /// Weight `i` of a load.
  TW_DEVICE static float WeightOf(const U32x4& raw, int i) {
    if constexpr (kTypeW == Type::kF32) {
      return FloatOf(raw.v[i]);
    } else {
      return i % 2 == 0 ? LowToF32<kTypeW>(raw.v[i / 2]) : HighToF32<kTypeW>(raw.v[i / 2]);
    }
  }

  TW_DEVICE void Multiply(const U32x4 (&raw)[kRows], int pack) {
    TW_UNROLL
    for (int i = 0; i < kPack / 4; ++i) {
      TW_UNROLL
      for (int m = 0; m < kTileM; ++m) {
        float values[4];
        LoadActivations<kTypeX>(x, x_row[m] + pack * kPack + 4 * i, values);
        TW_UNROLL
        for (int r = 0; r < kRows; ++r) {
          TW_UNROLL
          for (int j = 0; j < 4; ++j)
            acc[m][r] = Fma(WeightOf(raw[r], 4 * i + j), values[j], acc[m][r]);
        }
      }
    }
  }

  /// Every kSplit-th group of kUnroll spans, from `group` on.
  template <int kSplit, int kUnroll>
  TW_DEVICE void Run(int group) {
    const int spans = (packs + kPacksPerSpan - 1) / kPacksPerSpan;
    TW_NO_UNROLL
    for (; group * kUnroll < spans; group += kSplit) Accumulate<kUnroll>(group * kUnroll);
  }

  /// Elements begin .. k - 1 of the rows, one at a time, every `step`-th.
  TW_DEVICE void RunElements(int begin, int k, int step) {
    TW_NO_UNROLL
    for (int at = begin; at < k; at += step) {
      float weights[kRows];
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) weights[r] = LoadElement<kTypeW>(w[r], at);
      TW_UNROLL
      for (int m = 0; m < kTileM; ++m) {
        const float value = LoadElement<kTypeX>(x, x_row[m] + at);
        TW_UNROLL
        for (int r = 0; r < kRows; ++r) acc[m][r] = Fma(weights[r], value, acc[m][r]);
      }
    }
  }
};

/// The whole kernel. kWarps warps in kWarps / kSplit groups, each with kRows of the CTA's rows.
template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, int kTileM, int kTileN, int kWarps,
          int kSplit, int kUnroll>
TW_DEVICE void Gemv(const GemvParams& p) {
  constexpr int kGroups = kWarps / kSplit, kRows = kTileN / kGroups;
  static_assert(kGroups * kSplit == kWarps && kRows * kGroups == kTileN, "whole groups and rows");
  using Warp = GemvWarp<kTypeX, kTypeW, kTileM, kRows>;
  __shared__ float partial[kWarps][kTileM][kRows];

  const int warp_id = static_cast<int>(threadIdx.x) / 32;
  const int n0 = static_cast<int>(blockIdx.x) * kTileN, m0 = static_cast<int>(blockIdx.y) * kTileM;
  Warp warp;
  warp.lane = static_cast<int>(threadIdx.x) % 32;
  warp.packs = p.k / Warp::kPack;
  warp.x = static_cast<const u8*>(p.x) + m0 * p.ldx * FloatBytes<kTypeX>();
  const int first_row = n0 + warp_id / kSplit * kRows;
  TW_UNROLL
  for (int r = 0; r < kRows; ++r) {
    // Rows beyond the matrix read its last one and are not stored.
    const int row = first_row + r < p.n ? first_row + r : p.n - 1;
    warp.w[r] = static_cast<const u8*>(p.w) + row * p.w_row_bytes;
  }
  TW_UNROLL
  for (int m = 0; m < kTileM; ++m) {
    const int row = m0 + m < p.m ? m : p.m - 1 - m0;
    warp.x_row[m] = row * static_cast<int>(p.ldx);
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) warp.acc[m][r] = 0.0f;
  }

  LaunchDependentsIfSparse();
  warp.waits = true;
  if (p.w_constant == 0) warp.Wait();
  const int split = warp_id % kSplit;
  const bool aligned = PacksAligned<kTypeX, 4>(p.x, p.ldx) &&
                       (reinterpret_cast<u64>(p.w) | static_cast<u64>(p.w_row_bytes)) % 16 == 0;
  if (aligned) warp.template Run<kSplit, kUnroll>(split);
  WaitForPrerequisites();  // also a warp without a part of k
  LaunchDependents();
  // What is left: the last elements, fewer than a load has, or all of them.
  const int begin = aligned ? p.k - p.k % Warp::kPack : 0;
  warp.RunElements(begin + split * 32 + warp.lane, p.k, 32 * kSplit);

  TW_UNROLL
  for (int m = 0; m < kTileM; ++m) {
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float sum = WarpSum(warp.acc[m][r]);
      if (warp.lane == 0) partial[warp_id][m][r] = sum;
    }
  }
  __syncthreads();  // every warp's sums are there before any thread adds those of a row
  StoreSums<kTypeC, kTypeY, kSplit>(p, m0, partial);
}

}  // namespace tw
