#pragma once

#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/mma.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemv/gemv_codes.cuh"
#include "ops/gemm/cuda/gemv/gemv_params.h"

// Few rows of x times a matrix of weights in blocks, bound by reading the weights once. The tensor
// cores multiply: codes of 16 rows of W are the A of mma.sync, exact in bf16, x is B, the sums are
// f32. Decoding every weight to f32 and multiplying with fused multiply-adds took 8 to 9
// instructions a weight where an H200 has time for four; this takes about two.
//
// A warp owns strips of 16 rows, or shares them with kSplit - 1 others that take other spans of
// 256 values. It copies spans into its own ring of kStages in shared memory (cp.async) ahead of
// use; no other warp reads them, so that the loop has no barrier of the CTA.
//
// One mma has eight columns. Where x has fewer rows, each column takes the products of another
// sub-block of 32 values (x is zero in the others), so that every accumulator of a lane is the sum
// of one sub-block of one row, and is scaled once: columns are [8 / kColumns][kColumns], sub-blocks
// of a group by rows of x.
//
// The order of all sums depends on the spec and k, not on m: a row of y has the same bits in every
// batch of one kernel. An infinity or NaN in a row of x makes that row of y NaN.

namespace tw {

/// CpAsync16 of all 16 bytes, which is one instruction where a variable length takes about eight.
TW_DEVICE void CopyChunk(u32 smem, const void* global) {
#if defined(__CUDACC__)
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :
               : "r"(smem), "l"(global)
               : "memory");
#else
  CpAsync16(smem, global, 16);
#endif
}

template <Type kTypeX, Type kTypeW, int kTileM, int kStrips, int kStages>
struct GemvQWarp {
  using F = Codes<kTypeW>;
  static constexpr int kAlign = GemvRowAlignment(F::kBytes);
  static constexpr int kSpanBytes = kGemvSpan / F::kBlock * F::kBytes;
  static constexpr int kRowBytes = GemvSpanRowBytes(F::kBytes, F::kBlock);
  static constexpr int kMaxSkip = 16 - kAlign;
  static constexpr int kStageBytes = 16 * kStrips * kRowBytes;
  static constexpr int kColumns = kTileM > 4 ? 8 : kTileM > 2 ? 4 : kTileM;
  static constexpr int kGroup = 8 / kColumns;  // sub-blocks side by side
  // f32 as three bf16 of 8 bits each, exactly.
  static constexpr int kParts = kTypeX == Type::kF32 ? 3 : 1;

  const u8* w_begin;         // of the matrix
  const u8* w[2 * kStrips];  // rows g and g + 8 of each strip
  const u8* x;               // 4 t of the sub-block of this lane's column in the first group
  int row_bytes, k, g, t;    // lane = 4 g + t
  int slack;                 // bytes that a chunk of a span may hold beside the span
  u8* ring;                  // [kStages][kStrips][16][kRowBytes]
  float acc[kStrips][4];     // rows g, g and g + 8, g + 8 by columns 2 t, 2 t + 1

  /// Bytes that a row has before its span in the span's first chunk.
  TW_DEVICE int Skip(const u8* row, int span) const {
    if constexpr (kAlign == 16) return 0;
    const u32 begin = static_cast<u32>(reinterpret_cast<u64>(row));
    return static_cast<int>((begin + static_cast<u32>(span) * (kSpanBytes % 16)) % 16);
  }

  /// Starts the copy of a span of all rows. What lies behind a row becomes zero; so do whole spans.
  TW_DEVICE void Copy(int span, u8* stage) const {
    constexpr int kChunks = (kSpanBytes + kMaxSkip + 15) / 16;
    const int begin = span * kSpanBytes;
    // Rows may end within the last chunk of a span, and the matrix may begin within its first.
    if ((slack != 0 && span == 0) || begin + kSpanBytes + slack > row_bytes) {
      CopyGuarded(begin, stage);
      return;
    }
    const u32 smem = SmemAddress(stage) + static_cast<u32>(g * kRowBytes + 16 * t);
    TW_UNROLL
    for (int i = 0; i < 2 * kStrips; ++i) {
      const int skip = Skip(w[i], span);
      const u8* from = w[i] + (begin - skip + 16 * t);
      TW_UNROLL
      for (int c = 0; c < kChunks; c += 4) {
        if (16 * (c + 4) <= kSpanBytes || 16 * (c + t) < kSpanBytes + skip)
          CopyChunk(smem + static_cast<u32>(8 * i * kRowBytes + 16 * c), from + 16 * c);
      }
    }
  }

  /// The same for the ends of rows, reading no byte outside of the matrix.
  TW_DEVICE void CopyGuarded(int begin, u8* stage) const {
    u8* to_row = stage + g * kRowBytes;
    TW_NO_UNROLL
    for (int i = 0; i < 2 * kStrips; ++i, to_row += 8 * kRowBytes) {
      const u8* row = w[0];
      TW_UNROLL
      for (int j = 1; j < 2 * kStrips; ++j) row = i == j ? w[j] : row;
      const u8* from = row + begin;
      const int skip = kAlign == 16 ? 0 : static_cast<int>(reinterpret_cast<u64>(from) % 16);
      TW_NO_UNROLL
      for (int at = 16 * t - skip; at < kSpanBytes; at += 64) {
        u8* to = to_row + (skip + at);
        if (kAlign < 16 && from + at < w_begin) {
          TW_NO_UNROLL
          for (int unit = 0; unit < 16 + at; unit += 2)
            *reinterpret_cast<u16*>(to - at + unit) = static_cast<u16>(Load16Bits(from + unit));
          continue;
        }
        const int left = row_bytes - begin - at;
        CpAsync16(SmemAddress(to), from + at, left < 0 ? 0 : left > 16 ? 16 : left);
      }
    }
  }

  /// x of one sub-block for this lane's column, as the B of two mma: elements 16 h + 4 t + {0, 2}
  /// and {1, 3}, by part. `first`: the group's. Zeros behind the row.
  TW_DEVICE void LoadX(int first, u32 (&b)[kParts][4]) const {
    const u8* from = x + first * static_cast<i64>(FloatBytes<kTypeX>());
    const bool inside = first + 32 * (g / kColumns) < k;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u8* at = from + 16 * h * FloatBytes<kTypeX>();
      if constexpr (kTypeX == Type::kF32) {
        const U32x4 r = inside ? LoadCached16(at) : U32x4{{0, 0, 0, 0}};
        float rest[4];
        TW_UNROLL
        for (int j = 0; j < 4; ++j) rest[j] = FloatOf(r.v[j]);
        TW_UNROLL
        for (int part = 0; part < kParts; ++part) {
          b[part][2 * h] = PermuteBytes(BitsOf(rest[0]), BitsOf(rest[2]), 0x7632u);
          b[part][2 * h + 1] = PermuteBytes(BitsOf(rest[1]), BitsOf(rest[3]), 0x7632u);
          // The upper half of an f32 is a bf16, rounded towards zero: the difference is exact.
          TW_UNROLL
          for (int j = 0; j < 4; ++j) {
            const u32 pair = b[part][2 * h + j % 2];
            rest[j] -= j < 2 ? LowBF16ToF32(pair) : HighBF16ToF32(pair);
          }
        }
      } else {
        const U32x2 r = inside ? LoadCached8(at) : U32x2{{0, 0}};
        b[0][2 * h] = PermuteBytes(r.v[0], r.v[1], 0x5410u);
        b[0][2 * h + 1] = PermuteBytes(r.v[0], r.v[1], 0x7632u);
      }
    }
  }

  /// Sub-blocks kI .. kEnd - 1 of a half of a span, for column group `column` on: `b` counts in the
  /// columns of one sub-block only.
  template <int kI, int kEnd>
  TW_DEVICE void MultiplySubBlocks(const typename F::Row (&rows)[2 * kStrips], int half, int column,
                                   const u32 (&b)[kParts][4],
                                   float (&sums)[kStrips][F::kScales][4]) const {
    u32 own[kParts][4];
    TW_UNROLL
    for (int part = 0; part < kParts; ++part) {
      TW_UNROLL
      for (int i = 0; i < 4; ++i)
        own[part][i] = kGroup == 1 || g / kColumns == column ? b[part][i] : 0;
    }
    TW_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      u32 low[2][2], high[2][2];
      F::template Pairs<kI>(rows[2 * strip], half, t, low);
      F::template Pairs<kI>(rows[2 * strip + 1], half, t, high);
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const u32 a[4] = {low[h][0], high[h][0], low[h][1], high[h][1]};
        TW_UNROLL
        for (int part = 0; part < kParts; ++part)
          Mma16816<Type::kBF16>(sums[strip][h % F::kScales], a, own[part][2 * h],
                                own[part][2 * h + 1]);
      }
    }
    if constexpr (kI + 1 < kEnd) MultiplySubBlocks<kI + 1, kEnd>(rows, half, column + 1, b, sums);
  }

  /// The group of sub-blocks that starts with sub-block 4 half + kI of a span at element `first`.
  template <int kI>
  TW_DEVICE void MultiplyGroup(const typename F::Row (&rows)[2 * kStrips],
                               const typename F::Head (&heads)[2 * kStrips], int first, int half) {
    u32 b[kParts][4];
    LoadX(first + 128 * half + 32 * kI, b);
    float x_sums[4] = {};  // of x over the sub-block of each column
    if constexpr (F::kHasOffset) {
      const u32 ones[4] = {kOneBF16x2, kOneBF16x2, kOneBF16x2, kOneBF16x2};
      TW_UNROLL
      for (int part = 0; part < kParts; ++part) {
        Mma16816<Type::kBF16>(x_sums, ones, b[part][0], b[part][1]);
        Mma16816<Type::kBF16>(x_sums, ones, b[part][2], b[part][3]);
      }
    }
    float sums[kStrips][F::kScales][4] = {};
    if constexpr (kGroup == 8) {
      TW_UNROLL
      for (int i = 0; i < 2; ++i) MultiplySubBlocks<0, 4>(rows, i, 4 * i, b, sums);
    } else {
      MultiplySubBlocks<kI, kI + kGroup>(rows, half, 0, b, sums);
    }
    // Columns 2 t and 2 t + 1.
    const int s0 = 4 * half + kI + 2 * t / kColumns, s1 = 4 * half + kI + (2 * t + 1) / kColumns;
    TW_UNROLL
    for (int i = 0; i < 2 * kStrips; ++i) {
      float* out = &acc[i / 2][i % 2 * 2];
      TW_UNROLL
      for (int h = 0; h < F::kScales; ++h) {
        const float* sum = &sums[i / 2][h][i % 2 * 2];
        const CodeScale scale0 = F::ScaleOf(rows[i], heads[i], s0, h);
        const CodeScale scale1 = kColumns > 1 ? scale0 : F::ScaleOf(rows[i], heads[i], s1, h);
        out[0] = Fma(scale0.scale, sum[0], out[0]);
        out[1] = Fma(scale1.scale, sum[1], out[1]);
        if constexpr (F::kHasOffset) {
          out[0] = Fma(scale0.offset, x_sums[0], out[0]);
          out[1] = Fma(scale1.offset, x_sums[1], out[1]);
        }
      }
    }
    if constexpr (kI + kGroup < 4) MultiplyGroup<kI + kGroup>(rows, heads, first, half);
  }

  TW_DEVICE void Multiply(int span, const u8* stage) {
    typename F::Row rows[2 * kStrips];
    typename F::Head heads[2 * kStrips];
    TW_UNROLL
    for (int i = 0; i < 2 * kStrips; ++i) {
      rows[i] = F::Row::At(stage + (8 * i + g) * kRowBytes, Skip(w[i], span));
      heads[i] = F::LoadHead(rows[i]);
    }
    // Twice the same code: half of the time to compile.
    TW_NO_UNROLL
    for (int half = 0; half < (kGroup == 8 ? 1 : 2); ++half)
      MultiplyGroup<0>(rows, heads, span * kGemvSpan, half);
  }

  /// Every kSplit-th span from `first` on. All warps make the same number of turns.
  template <int kSplit>
  TW_DEVICE void Run(int first) {
    const int turns = ((k + kGemvSpan - 1) / kGemvSpan + kSplit - 1) / kSplit;
    u8* read = ring;
    u8* write = ring;
    // One call of Copy serves the first spans too: its code is a good part of the kernel's.
    TW_NO_UNROLL
    for (int turn = 1 - kStages; turn < turns; ++turn) {
      if (turn >= 0) {
        CpAsyncWait<kStages - 2>();  // this lane's part of the span has landed
        // All lanes' parts have landed, and all lanes have read the stage that is written next.
        SyncWarp();
      }
      const int span = first + turn * kSplit;
      if (turn + kStages - 1 < turns) Copy(span + (kStages - 1) * kSplit, write);
      CpAsyncCommit();
      write = write == ring + (kStages - 1) * kStageBytes ? ring : write + kStageBytes;
      if (turn < 0) continue;
      Multiply(span, read);
      read = read == ring + (kStages - 1) * kStageBytes ? ring : read + kStageBytes;
    }
  }
};

/// The whole kernel. kWarps warps in kWarps / kSplit groups, each with kTileN / groups of the CTA's
/// rows, whole strips of 16. `ring`: shared, [kWarps] rings, aligned to 16 bytes.
template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, int kTileM, int kTileN, int kWarps,
          int kSplit, int kStages>
TW_DEVICE void GemvQ(const GemvParams& p, u8* ring) {
  constexpr int kGroups = kWarps / kSplit, kRows = kTileN / kGroups, kStrips = kRows / 16;
  static_assert(kGroups * kSplit == kWarps && 16 * kStrips * kGroups == kTileN, "whole strips");
  using Warp = GemvQWarp<kTypeX, kTypeW, kTileM, kStrips, kStages>;
  __shared__ float partial[kWarps][kTileM][kRows];

  const int warp_id = static_cast<int>(threadIdx.x) / 32;
  const int n0 = static_cast<int>(blockIdx.x) * kTileN, m0 = static_cast<int>(blockIdx.y) * kTileM;
  const int first_row = n0 + warp_id / kSplit * kRows;
  Warp warp;
  warp.g = static_cast<int>(threadIdx.x) % 32 / 4;
  warp.t = static_cast<int>(threadIdx.x) % 4;
  warp.k = p.k;
  const bool aligned = (reinterpret_cast<u64>(p.w) | static_cast<u64>(p.w_row_bytes)) % 16 == 0;
  warp.slack = aligned && Warp::kSpanBytes % 16 == 0 ? 0 : Warp::kMaxSkip;
  warp.row_bytes = p.k / Warp::F::kBlock * Warp::F::kBytes;
  warp.ring = ring + warp_id * (kStages * Warp::kStageBytes);
  warp.w_begin = static_cast<const u8*>(p.w);
  TW_UNROLL
  for (int i = 0; i < 2 * kStrips; ++i) {
    // Rows beyond the matrix read its last one and are not stored.
    const int row = first_row + 8 * i + warp.g;
    warp.w[i] = warp.w_begin + (row < p.n ? row : p.n - 1) * p.w_row_bytes;
    KeepAddress(warp.w[i]);
    TW_UNROLL
    for (int j = 0; j < 2; ++j) warp.acc[i / 2][i % 2 * 2 + j] = 0.0f;
  }
  const int column = m0 + warp.g % Warp::kColumns;
  warp.x = static_cast<const u8*>(p.x) + ((column < p.m ? column : p.m - 1) * p.ldx +
                                          32 * (warp.g / Warp::kColumns) + 4 * warp.t) *
                                             FloatBytes<kTypeX>();
  KeepAddress(warp.x);
  warp.template Run<kSplit>(warp_id % kSplit);

  TW_UNROLL
  for (int i = 0; i < 4 * kStrips; ++i) {
    float sum = warp.acc[i / 4][i % 4];
    // Columns of the same row of x: first those of other lanes, then a lane's own two.
    if constexpr (Warp::kColumns < 8) sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if constexpr (Warp::kColumns < 4) sum += __shfl_xor_sync(kAllLanes, sum, 1);
    warp.acc[i / 4][i % 4] = sum;
  }
  TW_UNROLL
  for (int i = 0; i < 2 * kStrips; ++i) {
    float* acc = &warp.acc[i / 2][i % 2 * 2];
    if constexpr (Warp::kColumns == 1) acc[0] += acc[1];
    TW_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int m = 2 * warp.t + j;
      if (m < kTileM) partial[warp_id][m][8 * i + warp.g] = acc[j];
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
