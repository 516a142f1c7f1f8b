#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemv/gemv_params.h"
#include "ops/gemm/cuda/gemv/gemv_weights.cuh"

// Few rows of x times a matrix of weights: bound by reading the weights once. A warp owns kRows
// rows of W, or shares them with kSplit - 1 others that take other parts of k; its lanes read
// adjacent parts of a row, decode them in registers to f32 and multiply by kTileM rows of x, which
// come from L1. Sums are f32: in every lane over ascending k, then over the lanes, then over the
// warps that share a row; the order depends on the spec, k and the alignment of the rows, and not
// on m: a row of y has the same bits in every batch of one kernel.

namespace tw {

struct GlobalMemory {
  TW_DEVICE static U32x4 Load16(const void* p) { return LoadOnce16(p); }
  TW_DEVICE static U32x2 Load8(const void* p) { return LoadOnce8(p); }
  TW_DEVICE static u32 Load4(const void* p) { return LoadOnce4(p); }
  TW_DEVICE static u32 Load2(const void* p) { return LoadOnce2(p); }
};

/// Whole rows of 16-byte units, each read by one instruction: nothing is gained by L1.
struct StreamMemory {
  TW_DEVICE static U32x4 Load16(const void* p) { return LoadStream16(p); }
};

template <bool kCondition, class A, class B>
struct SelectType {
  using type = A;
};
template <class A, class B>
struct SelectType<false, A, B> {
  using type = B;
};

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
  using W = Weights<kTypeW>;
  static constexpr bool kPlain = kTypeW == Type::kBF16 || kTypeW == Type::kF16;
  static constexpr int kBlocksPerSpan = 32 / W::kLanes;  // a span: what the warp reads at a time

  const u8* x;        // the first of the rows of x
  int x_row[kTileM];  // elements from there to each row: half the registers of pointers
  const u8* w[kRows];
  int blocks;  // of a row
  int lane;
  float acc[kTileM][kRows];

  /// Spans `span` .. span + kUnroll - 1 of every row: all loads first, so that they are in flight
  /// together. One copy of this code serves the end of a row as well, at the price of a comparison
  /// for 64 multiply-adds or more: copies without it doubled the time to compile.
  template <int kUnroll>
  TW_DEVICE void Accumulate(int span) {
    using Memory = typename SelectType<kPlain, StreamMemory, GlobalMemory>::type;
    const int part = lane % W::kLanes;
    const int first = span * kBlocksPerSpan + lane / W::kLanes;
    typename W::Raw raw[kUnroll][kRows];
    TW_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int block = first + u * kBlocksPerSpan;
      // Beyond the row the last block is read again and not used: no load is conditional.
      const i64 at = static_cast<i64>(block < blocks ? block : blocks - 1) * W::kBytes;
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) raw[u][r] = W::template Load<Memory>(w[r] + at, part);
    }
    TW_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const int block = first + u * kBlocksPerSpan;
      if (block < blocks) Multiply(raw[u], block, part);
    }
  }

  TW_DEVICE void Multiply(const typename W::Raw (&raw)[kRows], int block, int part) {
    typename W::Scales scales[kRows];
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) scales[r] = W::Prepare(raw[r], part);
    TW_UNROLL
    for (int i = 0; i < W::kQuads; ++i) {
      float weights[kRows][4];
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) W::Decode(raw[r], scales[r], i, weights[r]);
      const int k = block * W::kBlock + W::QuadOffset(part, i);
      TW_UNROLL
      for (int m = 0; m < kTileM; ++m) {
        float values[4];
        LoadActivations<kTypeX>(x, x_row[m] + k, values);
        TW_UNROLL
        for (int r = 0; r < kRows; ++r) {
          TW_UNROLL
          for (int j = 0; j < 4; ++j) acc[m][r] = Fma(weights[r][j], values[j], acc[m][r]);
        }
      }
    }
  }

  /// Every kSplit-th group of kUnroll spans, from `group` on.
  template <int kSplit, int kUnroll>
  TW_DEVICE void Run(int group) {
    const int spans = (blocks + kBlocksPerSpan - 1) / kBlocksPerSpan;
    TW_NO_UNROLL
    for (; group * kUnroll < spans; group += kSplit) Accumulate<kUnroll>(group * kUnroll);
  }

  /// Elements begin .. k - 1 of rows of plain weights, one at a time, every `step`-th.
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
  warp.blocks = p.k / Warp::W::kBlock;
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

  const int split = warp_id % kSplit;
  if constexpr (Warp::kPlain) {
    const bool aligned = PacksAligned<kTypeX, 4>(p.x, p.ldx) &&
                         (reinterpret_cast<u64>(p.w) | static_cast<u64>(p.w_row_bytes)) % 16 == 0;
    if (aligned) warp.template Run<kSplit, kUnroll>(split);
    // What is left: the k % 8 last elements, or all of them.
    const int begin = aligned ? p.k - p.k % Warp::W::kBlock : 0;
    warp.RunElements(begin + split * 32 + warp.lane, p.k, 32 * kSplit);
  } else {
    warp.template Run<kSplit, kUnroll>(split);
  }

  TW_UNROLL
  for (int m = 0; m < kTileM; ++m) {
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float sum = WarpSum(warp.acc[m][r]);
      if (warp.lane == 0) partial[warp_id][m][r] = sum;
    }
  }
  __syncthreads();  // every warp's sums are there before any thread adds those of a row

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
