#pragma once

#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/mma.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemv/gemv_codes.cuh"
#include "ops/gemm/cuda/gemv/gemv_output.cuh"
#include "ops/gemm/cuda/gemv/segment.h"

// Few rows of x times a matrix of weights in blocks, bound by reading the weights once. The tensor
// cores multiply: codes of 16 rows of W are the A of mma.sync, exact in bf16, x is B, the sums are
// f32. Decoding every weight to f32 and multiplying with fused multiply-adds took 8 to 9
// instructions a weight where an H200 has time for four of q4_k; this takes three.
//
// kSplit warps own strips of 16 rows: they copy a segment of kSplit spans of 256 values of each row
// into a ring in shared memory (cp.async), lanes along the row, kStages - 1 segments ahead of use,
// and each multiplies one span. Copies of a span by its own warp, four lanes a row, needed no
// barrier but reached half of the bandwidth of memory.
//
// One mma has eight columns. Where x has fewer rows, each column takes the products of another
// sub-block of 32 values (x is zero in the others), so that every accumulator of a lane is the sum
// of one sub-block of one row, and is scaled once: columns are [8 / kColumns][kColumns], sub-blocks
// of a group by rows of x.
//
// The order of all sums depends on the spec and k, not on m: a row of y has the same bits in every
// batch of one kernel. An infinity or NaN in a row of x makes that row of y NaN.

namespace tw {

template <Type kTypeX, Type kTypeW, int kTileM, int kStrips, int kSplit, int kStages>
struct GemvQWarp {
  using F = Codes<kTypeW>;
  static constexpr int kAlign = GemvRowAlignment(F::kBytes);
  static constexpr int kMaxSkip = 16 - kAlign;
  static constexpr int kSpanBytes = kGemvSpan / F::kBlock * F::kBytes;
  static constexpr int kSegmentBytes = kSplit * kSpanBytes;
  static constexpr int kRowBytes = GemvSegmentBytes(kSplit, F::kBytes, F::kBlock);
  static constexpr int kStageBytes = 16 * kStrips * kRowBytes;
  static constexpr int kCopyRows = 16 * kStrips / kSplit;  // that a warp copies
  static_assert(kCopyRows * kSplit == 16 * kStrips, "whole rows for each warp");
  static constexpr int kColumns = kTileM > 4 ? 8 : kTileM > 2 ? 4 : kTileM;
  static constexpr int kGroup = 8 / kColumns;  // sub-blocks side by side
  // f32 as three bf16 of 8 bits each, exactly.
  static constexpr int kParts = kTypeX == Type::kF32 ? 3 : 1;
  // Accumulators that take turns where scales allow: an mma does not wait for the one before.
  static constexpr int kChains = F::kScales == 2 || kGroup >= 4 ? 2 : 1;
  struct RawX {
    u32 v[2][kTypeX == Type::kF32 ? 4 : 2];
  };

  const u8* w_begin;             // of the matrix
  const u8* copied[kCopyRows];   // rows that the warp copies
  int row_low[2 * kStrips];      // addresses of rows g and g + 8 of each strip, modulo 16
  const u8* x;                   // 4 t of the sub-block of this lane's column in the first group
  int row_bytes, k, g, t, lane;  // lane = 4 g + t
  int part;                      // of kSplit: the warp's span in a segment
  int slack;                     // bytes that a chunk of a segment may hold beside the segment
  u8* ring;                      // [kStages][16 kStrips][kRowBytes]
  RawX next_x;                   // of the group that is multiplied next
  float acc[kStrips][4];         // rows g, g and g + 8, g + 8 by columns 2 t, 2 t + 1

  /// Bytes that the first chunk of a segment has before it, of a row at `address`.
  TW_DEVICE static int Skip(int address, int turn) {
    return kAlign == 16 ? 0 : (address + turn * (kSegmentBytes % 16)) % 16;
  }
  TW_DEVICE static int Low(const u8* p) {
    return static_cast<int>(static_cast<u32>(reinterpret_cast<u64>(p)) % 16);
  }

  /// Starts the copy of segment `turn` of the warp's share of the rows. What lies behind a row
  /// becomes zero.
  TW_DEVICE void Copy(int turn, u8* stage) const {
    constexpr int kChunks = (kSegmentBytes + kMaxSkip + 15) / 16;
    const int begin = turn * kSegmentBytes;
    u8* to_row = stage + part * (kCopyRows * kRowBytes);
    // Rows may end within a segment, and the matrix may begin within the first chunk of its first.
    if ((slack != 0 && turn == 0) || begin + kSegmentBytes + slack > row_bytes) {
      CopyGuarded(begin, to_row);
      return;
    }
    const u32 smem = SmemAddress(to_row) + static_cast<u32>(16 * lane);
    TW_UNROLL
    for (int i = 0; i < kCopyRows; ++i) {
      const int skip = Skip(Low(copied[i]), turn);
      const u8* from = copied[i] + (begin - skip + 16 * lane);
      TW_UNROLL
      for (int c = 0; c < kChunks; c += 32) {
        if (16 * (c + 32) <= kSegmentBytes || 16 * (c + lane) < kSegmentBytes + skip)
          CpAsync16(smem + static_cast<u32>(i * kRowBytes + 16 * c), from + 16 * c);
      }
    }
  }

  /// The same for the ends of rows, reading no byte outside of the matrix.
  TW_DEVICE void CopyGuarded(int begin, u8* to_row) const {
    TW_NO_UNROLL
    for (int i = 0; i < kCopyRows; ++i, to_row += kRowBytes) {
      const u8* row = copied[0];
      TW_UNROLL
      for (int j = 1; j < kCopyRows; ++j) row = i == j ? copied[j] : row;
      const u8* from = row + begin;
      const int skip = kAlign == 16 ? 0 : Low(from);
      TW_NO_UNROLL
      for (int at = 16 * lane - skip; at < kSegmentBytes; at += 512) {
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

  /// Loads x of one sub-block for this lane's column: elements 16 h + 4 t .. + 3. `first`: the
  /// first element of the group. Zeros behind the row.
  TW_DEVICE void LoadX(int first) {
    const u8* from = x + first * static_cast<i64>(FloatBytes<kTypeX>());
    const bool inside = first + 32 * (g / kColumns) < k;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u8* at = from + 16 * h * FloatBytes<kTypeX>();
      if constexpr (kTypeX == Type::kF32) {
        const U32x4 r = inside ? LoadCached16(at) : U32x4{{0, 0, 0, 0}};
        TW_UNROLL
        for (int j = 0; j < 4; ++j) next_x.v[h][j] = r.v[j];
      } else {
        const U32x2 r = inside ? LoadCached8(at) : U32x2{{0, 0}};
        next_x.v[h][0] = r.v[0];
        next_x.v[h][1] = r.v[1];
      }
    }
  }

  /// What LoadX loaded as the B of two mma: elements {0, 2} and {1, 3} of each four, by part.
  TW_DEVICE void SplitX(u32 (&b)[kParts][4]) const {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      if constexpr (kTypeX == Type::kF32) {
        float rest[4];
        TW_UNROLL
        for (int j = 0; j < 4; ++j) rest[j] = FloatOf(next_x.v[h][j]);
        TW_UNROLL
        for (int i = 0; i < kParts; ++i) {
          // The upper half of an f32 is a bf16, rounded towards zero: the difference is exact.
          TW_UNROLL
          for (int j = 0; j < 2; ++j) {
            const u32 pair = PermuteBytes(BitsOf(rest[j]), BitsOf(rest[j + 2]), 0x7632u);
            b[i][2 * h + j] = pair;
            rest[j] -= LowBF16ToF32(pair);
            rest[j + 2] -= HighBF16ToF32(pair);
          }
        }
      } else {
        b[0][2 * h] = PermuteBytes(next_x.v[h][0], next_x.v[h][1], 0x5410u);
        b[0][2 * h + 1] = PermuteBytes(next_x.v[h][0], next_x.v[h][1], 0x7632u);
      }
    }
  }

  /// Sub-blocks kI .. kEnd - 1 of a half of a span, for column group `column` on: `b` counts in the
  /// columns of one sub-block only.
  template <int kI, int kEnd>
  TW_DEVICE void MultiplySubBlocks(const typename F::Row (&rows)[2 * kStrips], int half, int column,
                                   const u32 (&b)[kParts][4],
                                   float (&sums)[kStrips][kChains][4]) const {
    u32 own[kParts][4];
    TW_UNROLL
    for (int i = 0; i < kParts; ++i) {
      TW_UNROLL
      for (int j = 0; j < 4; ++j) own[i][j] = kGroup == 1 || g / kColumns == column ? b[i][j] : 0;
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
        for (int i = 0; i < kParts; ++i)
          Mma16816<Type::kBF16>(sums[strip][h % kChains], a, own[i][2 * h], own[i][2 * h + 1]);
      }
    }
    if constexpr (kI + 1 < kEnd) MultiplySubBlocks<kI + 1, kEnd>(rows, half, column + 1, b, sums);
  }

  /// The group of sub-blocks that starts with sub-block 4 half + kI of a span at element `first`.
  template <int kI>
  TW_DEVICE void MultiplyGroup(const typename F::Row (&rows)[2 * kStrips],
                               const typename F::Head (&heads)[2 * kStrips], int first, int half) {
    u32 b[kParts][4];
    SplitX(b);
    // Of the next group, or of the first one of the warp's next span.
    constexpr bool kLast = kI + kGroup >= 4;
    LoadX(first + 128 * half + 32 * (kI + kGroup) +
          (kLast && (kGroup == 8 || half == 1) ? (kSplit - 1) * kGemvSpan : 0));
    float x_sums[F::kScales][4] = {};  // of x over what shares a scale, of each column
    if constexpr (F::kHasOffset) {
      const u32 ones[4] = {kOneBF16x2, kOneBF16x2, kOneBF16x2, kOneBF16x2};
      TW_UNROLL
      for (int i = 0; i < kParts; ++i) {
        Mma16816<Type::kBF16>(x_sums[0], ones, b[i][0], b[i][1]);
        Mma16816<Type::kBF16>(x_sums[F::kScales - 1], ones, b[i][2], b[i][3]);
      }
    }
    float sums[kStrips][kChains][4] = {};
    if constexpr (kGroup == 8) {
      TW_NO_UNROLL
      for (int i = 0; i < 2; ++i) MultiplySubBlocks<0, 4>(rows, i, 4 * i, b, sums);
    } else {
      MultiplySubBlocks<kI, kI + kGroup>(rows, half, 0, b, sums);
    }
    if constexpr (kChains > F::kScales) {
      TW_UNROLL
      for (int i = 0; i < 4 * kStrips; ++i) sums[i / 4][0][i % 4] += sums[i / 4][1][i % 4];
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
          out[0] = Fma(scale0.offset, x_sums[h][0], out[0]);
          out[1] = Fma(scale1.offset, x_sums[h][1], out[1]);
        }
      }
    }
    if constexpr (kI + kGroup < 4) MultiplyGroup<kI + kGroup>(rows, heads, first, half);
  }

  /// `row`: g, in the stage of the segment.
  TW_DEVICE void Multiply(int turn, const u8* row) {
    typename F::Row rows[2 * kStrips];
    typename F::Head heads[2 * kStrips];
    TW_UNROLL
    for (int i = 0; i < 2 * kStrips; ++i) {
      rows[i] = F::Row::At(row + 8 * i * kRowBytes, Skip(row_low[i], turn) + part * kSpanBytes);
      heads[i] = F::LoadHead(rows[i]);
    }
    // Twice the same code: half of the time to compile.
    TW_NO_UNROLL
    for (int half = 0; half < (kGroup == 8 ? 1 : 2); ++half)
      MultiplyGroup<0>(rows, heads, (turn * kSplit + part) * kGemvSpan, half);
  }

  /// All segments. All warps make the same number of turns.
  TW_DEVICE void Run() {
    const int turns = (k + kSplit * kGemvSpan - 1) / (kSplit * kGemvSpan);
    int read = 0, write = 0;  // bytes from the ring to a stage
    // One call of Copy serves the first segments too: its code is a good part of the kernel's.
    TW_NO_UNROLL
    for (int turn = 1 - kStages; turn < turns; ++turn) {
      if (turn == 0) {
        // The kernels before this one write x; of constant weights the ring is being filled.
        WaitForPrerequisites();
        LoadX(part * kGemvSpan);
      }
      if (turn >= 0) {
        CpAsyncWait<kStages - 2>();  // this lane's part of the segment has landed
        // All parts have landed, and all warps have read the stage that is written next.
        __syncthreads();
      }
      if (turn + kStages - 1 < turns) Copy(turn + kStages - 1, ring + write);
      CpAsyncCommit();
      write = write == (kStages - 1) * kStageBytes ? 0 : write + kStageBytes;
      if (turn < 0) continue;
      Multiply(turn, ring + (read + g * kRowBytes));
      read = read == (kStages - 1) * kStageBytes ? 0 : read + kStageBytes;
    }
  }
};

/// The whole kernel, for rows m0 and on of x. kWarps warps in kWarps / kSplit groups, each with kTileN / groups of the CTA's
/// rows, whole strips of 16. `ring`: shared, one for each group, aligned to 16 bytes.
template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, int kTileM, int kTileN, int kWarps,
          int kSplit, int kStages, Epilogue kEpilogue = Epilogue::kNone>
TW_DEVICE void GemvQ(const GemvParams& p, int m0, u8* ring) {
  constexpr int kGroups = kWarps / kSplit, kRows = kTileN / kGroups, kStrips = kRows / 16;
  static_assert(kGroups * kSplit == kWarps && 16 * kStrips * kGroups == kTileN, "whole strips");
  using Warp = GemvQWarp<kTypeX, kTypeW, kTileM, kStrips, kSplit, kStages>;
  __shared__ float partial[kWarps][kTileM][kRows];

  const int warp_id = static_cast<int>(threadIdx.x) / 32;
  Warp warp;
  warp.lane = static_cast<int>(threadIdx.x) % 32;
  warp.g = warp.lane / 4;
  warp.t = warp.lane % 4;
  warp.part = warp_id % kSplit;
  warp.k = p.k;
  warp.row_bytes = p.k / Warp::F::kBlock * Warp::F::kBytes;
  warp.ring = ring + warp_id / kSplit * (kStages * Warp::kStageBytes);
  warp.w_begin = static_cast<const u8*>(p.w);
  // Rows beyond the matrix read its last one and are not stored.
  const int first_row = static_cast<int>(blockIdx.x) * kTileN + warp_id / kSplit * kRows;
  const auto row_address = [&](int i) {
    return warp.w_begin + (first_row + i < p.n ? first_row + i : p.n - 1) * p.w_row_bytes;
  };
  TW_UNROLL
  for (int i = 0; i < Warp::kCopyRows; ++i) {
    warp.copied[i] = row_address(warp.part * Warp::kCopyRows + i);
    KeepAddress(warp.copied[i]);
  }
  TW_UNROLL
  for (int i = 0; i < 2 * kStrips; ++i) warp.row_low[i] = Warp::Low(row_address(8 * i + warp.g));
  const bool aligned = (reinterpret_cast<u64>(p.w) | static_cast<u64>(p.w_row_bytes)) % 16 == 0;
  warp.slack = aligned && Warp::kSegmentBytes % 16 == 0 ? 0 : Warp::kMaxSkip;
  const int column = m0 + warp.g % Warp::kColumns;
  warp.x = static_cast<const u8*>(p.x) + ((column < p.m ? column : p.m - 1) * p.ldx +
                                          32 * (warp.g / Warp::kColumns) + 4 * warp.t) *
                                             FloatBytes<kTypeX>();
  KeepAddress(warp.x);
  TW_UNROLL
  for (int i = 0; i < 4 * kStrips; ++i) warp.acc[i / 4][i % 4] = 0.0f;
  LaunchDependentsIfSparse();
  if (p.w_constant == 0) WaitForPrerequisites();
  warp.Run();
  WaitForPrerequisites();  // it has: for a reader of the PTX, who cannot know that turn 0 comes
  LaunchDependents();

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
  StoreSums<kTypeC, kTypeY, kSplit, kEpilogue>(p, m0, partial);
}

}  // namespace tw
