#pragma once

#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/int8.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/silu.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemv/int8_codes.cuh"
#include "tilewright/cuda/gemv_params.h"

// Few rows of x, rounded to int8 in blocks of 32, times a matrix of weights in blocks, at the rate
// of memory. As many CTAs as multiprocessors, each with a contiguous part of the rows of W and all
// of x in shared memory, which it rounds itself. A warp takes kRows rows of W at a time and reads
// them as one stream of segments through a ring of its own (cp.async), kStages - 1 segments ahead of
// use, across the ends of rows. Lanes multiply chunks side by side (int8_codes.cuh): about one
// instruction a weight, where tensor cores with bf16 of gemv_q take three.
//
// Rows that are to be normalised first (kNorm) every CTA normalises itself, on their way to int8: all
// CTAs read them anyway, and a kernel that did it for them would take longer than they do. Squares are
// summed over each 32 of a row, and those sums by every warp, in an order that k alone decides.
//
// A sum is that of one warp: in every lane over ascending chunks, then over the lanes. The order
// depends on the format and k alone: a row of y has the same bits whatever the spec, the GPU or the
// batch. An infinity or NaN in a row of x makes that row of y NaN.

namespace tw {

using tilewright::cuda::GemvParams;
using tilewright::cuda::GemvRowAlignment;

template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM,
          int kRows, int kWarps, int kSegmentValues, int kStages, bool kNorm>
struct GemvInt8 {
  using F = Int8Codes<kTypeW>;
  static constexpr bool kGated = kEpilogue == Epilogue::kSwiGlu;
  static constexpr int kColumns = kGated ? kRows / 2 : kRows;  // of y that a warp makes at a time
  static constexpr int kTurns = kSegmentValues / (32 * F::kChunk);  // chunks of a lane
  static_assert(kTurns * 32 * F::kChunk == kSegmentValues, "whole chunks for every lane");
  static constexpr int kAlign = GemvRowAlignment(F::kBytes);
  static constexpr int kSegmentBytes = kSegmentValues / F::kBlock * F::kBytes;
  static_assert(kSegmentBytes % 16 == 0, "all segments of a row begin at the same byte of 16");
  static constexpr int kRowBytes = tilewright::cuda::GemvInt8RowBytes(kSegmentBytes, kAlign);
  static constexpr int kStageBytes = kRows * kRowBytes;
  static constexpr int kHalves = F::kChunk / 32;  // of a chunk, each with a scale
  static constexpr int kSums = kRows * kTileM;    // of a unit, one for each row of W and of x
  static_assert(kSums <= 32 && (kSums & (kSums - 1)) == 0 && kRows <= 8, "a lane for each sum");

  const GemvParams& p;
  u8* ring;  // shared: of this warp, [kStages][kRows][kRowBytes]
  u8* x;  // shared: [kTileM][x_bytes]: bytes, [32 chunks][planes of 16 bytes][32], then scales, and
          // with kNorm sums of squares
  int lane, warp;
  int chunks, segments;  // of a row
  int row_bytes;
  int x_scales, x_bytes;  // bytes to the scales of a row of x, and of a row of x
  int begin, end;         // units of this CTA
  bool whole;             // rows are whole segments at multiples of 16 bytes

  /// Where the copies are: segment `segment` of the rows of unit `unit`, to the stage at byte `to`.
  struct Cursor {
    int unit, segment, to;
    const u8* from[kRows];  // of this lane, in each row
  };

  /// Row `r` of W of a unit.
  TW_DEVICE int RowOf(int unit, int r) const {
    if constexpr (kGated) {
      constexpr int kBlock = tilewright::cuda::kGemvGatedBlock;
      const int column = unit * kColumns + r % kColumns;
      return column / kBlock * (2 * kBlock) + r / kColumns * kBlock + column % kBlock;
    }
    return unit * kRows + r;
  }
  TW_DEVICE const u8* AddressOf(int row) const {
    return static_cast<const u8*>(p.w) + static_cast<i64>(row) * p.w_row_bytes;
  }
  TW_DEVICE static int Low(const u8* address) {
    return kAlign == 16 ? 0
                        : static_cast<int>(static_cast<u32>(reinterpret_cast<u64>(address)) % 16);
  }

  /// Row `r` of W of a unit; rows that W does not have are its last one.
  TW_DEVICE const u8* AddressIn(int unit, int r) const {
    const int row = RowOf(unit, r);
    return AddressOf(row < p.n ? row : p.n - 1);
  }
  TW_DEVICE void SetRows(Cursor& at) const {
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) at.from[r] = AddressIn(at.unit, r) + 16 * lane;
  }
  TW_DEVICE static int NextStage(int stage) {
    return stage == (kStages - 1) * kStageBytes ? 0 : stage + kStageBytes;
  }

  /// Starts the copy of a segment, if there still is one, and moves on.
  TW_DEVICE void Copy(Cursor& at) const {
    if (at.unit < end) {
      if (whole) {
        const u32 to = SmemAddress(ring + at.to) + static_cast<u32>(16 * lane);
        TW_UNROLL
        for (int r = 0; r < kRows; ++r) {
          TW_UNROLL
          for (int c = 0; c < kSegmentBytes / 16; c += 32) {
            if (16 * (c + 32) <= kSegmentBytes || 16 * (c + lane) < kSegmentBytes)
              CpAsync16(to + static_cast<u32>(r * kRowBytes + 16 * c), at.from[r] + 16 * c);
          }
          at.from[r] += kSegmentBytes;
        }
      } else if (reinterpret_cast<u64>(p.w) % 16 == 0) {
        TW_UNROLL
        for (int r = 0; r < kRows; ++r)
          CopyEnd(at.from[r], at.segment * kSegmentBytes, ring + (at.to + r * kRowBytes));
      } else {
        TW_NO_UNROLL
        for (int r = 0; r < kRows; ++r)
          CopyRow(AddressIn(at.unit, r), at.segment * kSegmentBytes,
                  ring + (at.to + r * kRowBytes));
      }
    }
    CpAsyncCommit();
    at.to = NextStage(at.to);
    if (++at.segment < segments) return;
    at.segment = 0;
    at.unit += kWarps;
    SetRows(at);
  }

  /// Chunks of 16 aligned bytes that hold bytes `first` .. of a row and end with the row. `from`: the
  /// row, 16 bytes a lane further; the matrix begins at a multiple of 16.
  TW_DEVICE void CopyEnd(const u8* from, int first, u8* to_row) const {
    constexpr int kChunks = (kSegmentBytes + 16 - kAlign + 15) / 16;
    const int skip = Low(from);
    from += first - skip;
    const u32 to = SmemAddress(to_row) + static_cast<u32>(16 * lane);
    const int segment_left = row_bytes - first < kSegmentBytes ? row_bytes - first : kSegmentBytes;
    const int row_left = row_bytes - first + skip - 16 * lane;
    TW_UNROLL
    for (int c = 0; c < kChunks; c += 32) {
      const int left = row_left - 16 * c;
      if (16 * (c + lane) < segment_left + skip)
        CpAsync16(to + static_cast<u32>(16 * c), from + 16 * c, left < 16 ? left : 16);
    }
  }

  /// The same of a matrix that begins anywhere; no byte outside of it is read.
  TW_DEVICE void CopyRow(const u8* row, int first, u8* to_row) const {
    constexpr int kChunks = (kSegmentBytes + 16 - kAlign + 15) / 16;
    const int skip = Low(row);
    const u8* from = row + (first - skip + 16 * lane);
    const u32 to = SmemAddress(to_row) + static_cast<u32>(16 * lane);
    TW_NO_UNROLL
    for (int c = 0; c < kChunks; c += 32, from += 512) {
      const int at = 16 * (c + lane) - skip;  // of the segment
      const int left = row_bytes - first - at;
      if (left <= 0 || at >= kSegmentBytes) continue;
      if (kAlign < 16 && from < static_cast<const u8*>(p.w)) {
        // The matrix begins within these 16 bytes.
        TW_NO_UNROLL
        for (int unit = -at; unit < 16; unit += 2) {
          *reinterpret_cast<u16*>(to_row + (at + skip + unit)) =
              static_cast<u16>(Load16Bits(from + unit));
        }
        continue;
      }
      CpAsync16(to + static_cast<u32>(16 * c), from, left < 16 ? left : 16);
    }
  }

  /// Rounds x, eight values of a row at a time: the four threads of a block of 32 are neighbours.
  /// Loads of kBatch packs are on their way together, so that a long row waits for memory as often
  /// as a short one.
  TW_DEVICE void RoundX() const {
    constexpr int kBatch = 4, kThreads = 32 * kWarps;
    const int packs = p.k / 8, all = packs * RowsOfX();
    TW_NO_UNROLL
    for (int first = 0; first < all; first += kBatch * kThreads) {
      float v[kBatch][8] = {};
      TW_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const int at = first + i * kThreads + static_cast<int>(threadIdx.x);
        const int m = kTileM == 1 ? 0 : at / packs;
        if (at < all) LoadPack<kTypeX, 8>(p.x, m * p.ldx + 8 * (at - m * packs), v[i]);
      }
      TW_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        if (first + i * kThreads >= all) break;
        const int at = first + i * kThreads + static_cast<int>(threadIdx.x);
        const int m = kTileM == 1 ? 0 : at / packs;
        RoundPack(at - m * packs, at < all, v[i], x + m * x_bytes);
      }
    }
  }

  TW_DEVICE int RowsOfX() const { return p.m < kTileM ? p.m : kTileM; }
  /// Shared: of row `m`, for each 32 values of it.
  TW_DEVICE float* Squares(int m) const {
    return reinterpret_cast<float*>(x + (m * x_bytes + x_scales + x_scales / 4));
  }
  /// Eight of the norm's weights that this thread needs first.
  TW_DEVICE void LoadWeights(float (&weights)[8]) const {
    const int pack = static_cast<int>(threadIdx.x);
    if (8 * pack < p.k) LoadPack<Type::kF32, 8>(p.norm, 8 * pack, weights);
  }

  /// Calls use(m, pack, inside, v) for every eight values of x, the four threads of a block of 32 as
  /// neighbours. `first`: those that this thread comes to first.
  template <class Use>
  TW_DEVICE void ForEachPack(const float (&first)[8], Use use) const {
    const int packs = p.k / 8, rows = RowsOfX(), thread = static_cast<int>(threadIdx.x);
    TW_NO_UNROLL
    for (int m = 0; m < rows; ++m) {
      TW_NO_UNROLL
      for (int from = 0; from < packs; from += 32 * kWarps) {
        const int pack = from + thread;
        float v[8];
        TW_UNROLL
        for (int i = 0; i < 8; ++i) v[i] = first[i];
        if ((m > 0 || from > 0) && pack < packs) LoadPack<kTypeX, 8>(p.x, m * p.ldx + 8 * pack, v);
        use(m, pack, pack < packs, v);
      }
    }
  }

  /// The same of rows that are normalised. `weights`: of LoadWeights.
  TW_DEVICE void NormAndRoundX(const float (&weights)[8]) const {
    float first[8] = {};
    if (static_cast<int>(threadIdx.x) < p.k / 8)
      LoadPack<kTypeX, 8>(p.x, 8 * static_cast<int>(threadIdx.x), first);
    ForEachPack(first, [&](int m, int pack, bool inside, const float(&v)[8]) {
      float sum = 0.0f;
      TW_UNROLL
      for (int i = 0; i < 8; ++i) sum = Fma(v[i], v[i], sum);
      TW_UNROLL
      for (int step = 1; step <= 2; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
      if (inside && pack % 4 == 0) Squares(m)[pack / 4] = sum;
    });
    __syncthreads();  // the squares of all rows are there before any warp adds them up
    int scaled = -1;  // the row that `scale` is of
    float scale = 0.0f;
    ForEachPack(first, [&](int m, int pack, bool inside, float(&v)[8]) {
      if (m != scaled) scale = ScaleOf(m);
      scaled = m;
      float w[8];
      TW_UNROLL
      for (int i = 0; i < 8; ++i) w[i] = weights[i];
      if (inside && pack >= 32 * kWarps) LoadPack<Type::kF32, 8>(p.norm, 8 * pack, w);
      TW_UNROLL
      for (int i = 0; i < 8; ++i) v[i] = v[i] * scale * w[i];
      RoundPack(pack, inside, v, x + m * x_bytes);
    });
  }
  /// One over the root of the mean square of row `m`. All lanes call it.
  TW_DEVICE float ScaleOf(int m) const {
    float sum = 0.0f;
    TW_NO_UNROLL
    for (int i = lane; i < p.k / 32; i += 32) sum += Squares(m)[i];
    return InverseRoot(WarpSum(sum) / static_cast<float>(p.k) + p.epsilon);
  }

  TW_DEVICE void RoundPack(int pack, bool inside, const float (&v)[8], u8* to) const {
    u32 most = 0;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const u32 magnitude = BitsOf(v[i]) & 0x7fffffffu;
      most = magnitude > most ? magnitude : most;
    }
    TW_UNROLL
    for (int step = 1; step <= 2; step *= 2) {
      const u32 other = BitsOf(__shfl_xor_sync(kAllLanes, FloatOf(most), step));
      most = other > most ? other : most;
    }
    const Int8Scale scale = Int8ScaleOf(most);
    u32 words[2];
    int sum = 0;
    TW_UNROLL
    for (int i = 0; i < 2; ++i) {
      u32 bytes[4];
      TW_UNROLL
      for (int j = 0; j < 4; ++j) bytes[j] = Int8Of(v[4 * i + j], scale.inverse);
      words[i] = PermuteBytes(PermuteBytes(bytes[0], bytes[1], 0x0040u),
                              PermuteBytes(bytes[2], bytes[3], 0x0040u), 0x5410u);
      sum = DotUnsigned4(0x01010101u, words[i], sum);
    }
    float sums = static_cast<float>(sum);  // exact
    TW_UNROLL
    for (int step = 1; step <= 2; step *= 2) sums += __shfl_xor_sync(kAllLanes, sums, step);
    int quarter = pack % 4;
    if constexpr (kInterleavesX<F>) quarter = Interleave(quarter, words);
    if (!inside) return;
    const Int8Place place = F::PlaceOf(pack / 4);
    const int plane = 2 * place.half + quarter / 2;
    const int line = place.chunk / 32 * (2 * kHalves) + plane;
    StoreShared8(
        SmemAddress(to) + static_cast<u32>(line * 512 + place.chunk % 32 * 16 + quarter % 2 * 8),
        words[0], words[1]);
    if (pack % 4 == 0) {
      StoreShared8(
          SmemAddress(to) + static_cast<u32>(x_scales + (place.chunk * kHalves + place.half) * 8),
          BitsOf(scale.d), BitsOf(sums));
    }
  }

  /// Of two lanes whose values are 16 apart one makes the first four words of both of them, where
  /// bytes of the one and the other take turns, the second one the last four. Returns which quarter of
  /// the block the words are then.
  TW_DEVICE static int Interleave(int quarter, u32 (&words)[2]) {
    const bool upper = quarter >= 2;
    const u32 other = BitsOf(__shfl_xor_sync(kAllLanes, FloatOf(upper ? words[0] : words[1]), 2));
    const u32 first = upper ? other : words[0], second = upper ? words[1] : other;
    words[0] = PermuteBytes(first, second, 0x5140u);
    words[1] = PermuteBytes(first, second, 0x7362u);
    return quarter % 2 * 2 + (upper ? 1 : 0);
  }

  TW_DEVICE void LoadX(int m, int chunk, u32 (&bytes)[F::kChunk / 4],
                       float (&scales)[kHalves][2]) const {
    const u8* row = x + m * x_bytes;
    const u8* at = row + (chunk / 32 * (1024 * kHalves) + chunk % 32 * 16);
    TW_UNROLL
    for (int plane = 0; plane < 2 * kHalves; ++plane) {
      const U32x4 v = *reinterpret_cast<const U32x4*>(at + 512 * plane);
      TW_UNROLL
      for (int i = 0; i < 4; ++i) bytes[4 * plane + i] = v.v[i];
    }
    const u8* from = row + (x_scales + chunk * (8 * kHalves));
    if constexpr (kHalves == 2) {
      const U32x4 v = *reinterpret_cast<const U32x4*>(from);
      TW_UNROLL
      for (int i = 0; i < 4; ++i) scales[i / 2][i % 2] = FloatOf(v.v[i]);
    } else {
      const U32x2 v = *reinterpret_cast<const U32x2*>(from);
      scales[0][0] = FloatOf(v.v[0]);
      scales[0][1] = FloatOf(v.v[1]);
    }
  }

  /// `skips`: bytes of 16 before each row. Rows that W does not have are multiplied, and not stored.
  TW_DEVICE void Multiply(int segment, const u8* stage, const int (&skips)[kRows],
                          float (&sums)[kSums]) const {
    TW_UNROLL
    for (int turn = 0; turn < kTurns; ++turn) {
      const int chunk = (segment * kTurns + turn) * 32 + lane;
      if (chunk >= chunks) continue;
      typename F::Chunk w[kRows];
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) {
        w[r] = F::Load(stage + r * kRowBytes, skips[r], turn * 32 + lane);
      }
      TW_UNROLL
      for (int m = 0; m < kTileM; ++m) {
        u32 bytes[F::kChunk / 4];
        float scales[kHalves][2];
        LoadX(m, chunk, bytes, scales);
        TW_UNROLL
        for (int r = 0; r < kRows; ++r) {
          float& sum = sums[r * kTileM + m];
          sum = F::Add(w[r], bytes, scales, sum);
        }
      }
    }
  }

  /// Sum i over the lanes, in lanes i * 32 / kSums and following: lanes give each other half of
  /// what they have, and add in the order of WarpSum. Instances and not a loop: what is left stays in
  /// registers.
  template <int kLeft, int kStep>
  TW_DEVICE float Reduce(float (&sums)[kSums]) const {
    if constexpr (kStep == 0) {
      return sums[0];
    } else {
      if constexpr (kLeft > 1) {
        const bool upper = (lane & kStep) != 0;
        TW_UNROLL
        for (int i = 0; i < kLeft / 2; ++i) {
          const float give = upper ? sums[i] : sums[i + kLeft / 2];
          const float keep = upper ? sums[i + kLeft / 2] : sums[i];
          sums[i] = keep + __shfl_xor_sync(kAllLanes, give, kStep);
        }
      } else {
        sums[0] += __shfl_xor_sync(kAllLanes, sums[0], kStep);
      }
      return Reduce<(kLeft + 1) / 2, kStep / 2>(sums);
    }
  }

  /// Which element of y the lane stores of a unit; column -1: none.
  struct Element {
    int row, column;
  };
  TW_DEVICE Element ElementOf(int unit) const {
    constexpr int kLanes = 32 / kSums;
    const int i = lane / kLanes, m = i % kTileM, r = i / kTileM;
    const int column = unit * kColumns + r;
    const bool mine = lane % kLanes == 0 && r < kColumns && m < p.m && unit < end &&
                      column < (kGated ? p.n / 2 : p.n);
    return {m, mine ? column : -1};
  }

  TW_DEVICE void Run() const {
    Cursor copied{begin + warp, 0, 0, {}};
    SetRows(copied);
    TW_NO_UNROLL
    for (int i = 0; i < kStages - 1; ++i) Copy(copied);
    if constexpr (kNorm) {
      float weights[8] = {};
      LoadWeights(weights);
      WaitForPrerequisites();  // the kernels before this one write x, and c
      NormAndRoundX(weights);
    } else {
      WaitForPrerequisites();  // the same
      RoundX();
    }
    __syncthreads();  // all of x is there before any warp multiplies
    int stage = 0;    // bytes from the ring to it
    // All warps of a CTA make the same number of rounds, so that they meet the same shuffles.
    TW_NO_UNROLL
    for (int round = begin; round < end; round += kWarps) {
      const int unit = round + warp;
      const Element element = ElementOf(unit);
      float addend = 0.0f;  // asked for ahead of the products
      if constexpr (kTypeC != Type::kNone) {
        if (p.beta != 0.0f && element.column >= 0)
          addend = LoadElement<kTypeC>(p.c, element.row * p.ldc + element.column);
      }
      int skips[kRows];
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) skips[r] = Low(AddressIn(unit, r));
      float sums[kSums] = {};
      TW_NO_UNROLL
      for (int segment = 0; segment < segments; ++segment) {
        CpAsyncWait<kStages - 2>();  // this lane's part of the segment has landed
        WarpBarrier();               // all parts have, and all lanes have read the stage before
        Copy(copied);                // to that stage
        if (unit < end) Multiply(segment, ring + stage, skips, sums);
        stage = NextStage(stage);
      }
      float value = p.alpha * Reduce<kSums, 16>(sums);
      if constexpr (kGated) {
        const float up = __shfl_xor_sync(kAllLanes, value, 16);
        value = SiluOf(value) * up;
      }
      if (element.column < 0) continue;
      if constexpr (kTypeC != Type::kNone) {
        if (p.beta != 0.0f) value = Fma(p.beta, addend, value);
      }
      StoreElement<kTypeY>(p.y, element.row * p.ldy + element.column, value);
    }
  }
};

/// The whole kernel. `smem`: shared, GemvInt8Smem bytes, aligned to 16.
template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM,
          int kRows, int kWarps, int kSegmentValues, int kStages, bool kNorm = false>
TW_DEVICE void GemvInt8Run(const GemvParams& p, u8* smem) {
  using Kernel = GemvInt8<kTypeX, kTypeW, kTypeC, kTypeY, kEpilogue, kTileM, kRows, kWarps,
                          kSegmentValues, kStages, kNorm>;
  using F = typename Kernel::F;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int columns = Kernel::kGated ? p.n / 2 : p.n;
  const int units = (columns + Kernel::kColumns - 1) / Kernel::kColumns;
  const auto border = [&](unsigned int cta) {
    return static_cast<int>(static_cast<i64>(units) * cta / gridDim.x);
  };
  const int segments = (p.k + kSegmentValues - 1) / kSegmentValues;
  const bool whole = p.k == segments * kSegmentValues &&
                     (reinterpret_cast<u64>(p.w) | static_cast<u64>(p.w_row_bytes)) % 16 == 0;
  const Kernel kernel{p,
                      smem + warp * (kStages * Kernel::kStageBytes),
                      smem + kWarps * kStages * Kernel::kStageBytes,
                      lane,
                      warp,
                      p.k / F::kChunk,
                      segments,
                      p.k / F::kBlock * F::kBytes,
                      segments * kSegmentValues,
                      tilewright::cuda::GemvInt8XBytes(segments * kSegmentValues, kNorm),
                      border(blockIdx.x),
                      border(blockIdx.x + 1),
                      whole};
  LaunchDependentsIfSparse();
  if (p.w_constant == 0) WaitForPrerequisites();
  kernel.Run();
  LaunchDependents();
}

}  // namespace tw
