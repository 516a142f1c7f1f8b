#pragma once

#include "device/cuda/kernels/int8.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemv/int8_codes.cuh"

// Rows of x in shared memory, rounded to int8 in blocks of 32, and their products with rows of W that
// a warp has in a stage of its ring: what gemv_int8 computes, and every kernel that is to give the
// same bits.
//
// Rows that are to be normalised first every CTA normalises itself, on their way to int8: all CTAs
// read them anyway, and a kernel that did it for them would take longer than they do. Squares are
// summed over each 32 of a row, and those sums by every warp, in an order that k alone decides.
//
// A sum is that of one warp: in every lane over ascending chunks, then over the lanes. The order
// depends on the format and k alone: a row of y has the same bits whatever the spec, the GPU or the
// batch. An infinity or NaN in a row of x makes that row of y NaN.

namespace tw {

/// Where rows of x come from: [m][k] of kTypeX.
template <Type kTypeX>
struct PlainRows {
  const void* x;
  i64 ldx;
  TW_DEVICE void Load(int m, int pack, float (&v)[8]) const {
    LoadPack<kTypeX, 8>(x, m * ldx + 8 * pack, v);
  }
};

/// Eight values of a block of 32, whose four threads are neighbours, as bytes; the block's factor and the
/// sum of its bytes.
struct RoundedEight {
  u32 words[2];
  float scale, sum;
};
TW_DEVICE RoundedEight RoundEight(const float (&v)[8]) {
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
  RoundedEight rounded;
  int sum = 0;
  TW_UNROLL
  for (int i = 0; i < 2; ++i) {
    u32 bytes[4];
    TW_UNROLL
    for (int j = 0; j < 4; ++j) bytes[j] = Int8Of(v[4 * i + j], scale.inverse);
    rounded.words[i] = PermuteBytes(PermuteBytes(bytes[0], bytes[1], 0x0040u),
                                    PermuteBytes(bytes[2], bytes[3], 0x0040u), 0x5410u);
    sum = DotUnsigned4(0x01010101u, rounded.words[i], sum);
  }
  rounded.scale = scale.d;
  rounded.sum = static_cast<float>(sum);  // exact
  TW_UNROLL
  for (int step = 1; step <= 2; step *= 2)
    rounded.sum += __shfl_xor_sync(kAllLanes, rounded.sum, step);
  return rounded;
}

/// The sum of the squares of the 32 values, in an order that is always the same.
TW_DEVICE float SquaresOfEight(const float (&v)[8]) {
  float sum = 0.0f;
  TW_UNROLL
  for (int i = 0; i < 8; ++i) sum = Fma(v[i], v[i], sum);
  TW_UNROLL
  for (int step = 1; step <= 2; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  return sum;
}
/// One over the root of the mean square of k values, from the sums of each 32. All lanes call it.
TW_DEVICE float NormScale(const float* squares, int k, float epsilon) {
  float sum = 0.0f;
  TW_NO_UNROLL
  for (int i = static_cast<int>(threadIdx.x) % 32; i < k / 32; i += 32) sum += squares[i];
  return InverseRoot(WarpSum(sum) / static_cast<float>(k) + epsilon);
}

/// Sum i over the lanes, in lanes i * 32 / kSums and following: lanes give each other half of
/// what they have, and add in the order of WarpSum. Instances and not a loop: what is left stays in
/// registers. kLeft = kSums and kStep = 16 to begin with.
template <int kLeft, int kStep, int kSums>
TW_DEVICE float ReduceSums(int lane, float (&sums)[kSums]) {
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
    return ReduceSums<(kLeft + 1) / 2, kStep / 2>(lane, sums);
  }
}

/// kRowBytes: from one row of W to the next in a stage.
template <Type kTypeW, int kTileM, int kRows, int kWarps, int kSegmentValues, int kRowBytes>
struct Int8Product {
  using F = Int8Codes<kTypeW>;
  static constexpr int kTurnValues = 32 * F::kChunk;
  static constexpr int kTurns = (kSegmentValues + kTurnValues - 1) / kTurnValues;
  static_assert(kSegmentValues % kTurnValues == 0 || kSegmentValues < kTurnValues,
                "whole chunks for every lane, or rows of one segment");
  static constexpr int kHalves = F::kChunk / 32;  // of a chunk, each with a scale
  static constexpr int kSums = kRows * kTileM;    // of a unit, one for each row of W and of x
  static_assert(kSums <= 32 && (kSums & (kSums - 1)) == 0 && kRows <= 8, "a lane for each sum");

  u8* x;  // shared: [kTileM][x_bytes]: bytes, [32 chunks][planes of 16 bytes][32], then scales, and
          // for rows that are normalised sums of squares
  int lane;
  int k, rows;            // of x
  int chunks;             // of a row
  int x_scales, x_bytes;  // bytes to the scales of a row of x, and of a row of x

  /// Rounds x, eight values of a row at a time: the four threads of a block of 32 are neighbours.
  /// Loads of kBatch packs are on their way together, so that a long row waits for memory as often
  /// as a short one.
  template <class Source>
  TW_DEVICE void RoundX(const Source& source) const {
    constexpr int kBatch = 4, kThreads = 32 * kWarps;
    const int packs = k / 8, all = packs * rows;
    TW_NO_UNROLL
    for (int first = 0; first < all; first += kBatch * kThreads) {
      float v[kBatch][8] = {};
      TW_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const int at = first + i * kThreads + static_cast<int>(threadIdx.x);
        const int m = kTileM == 1 ? 0 : at / packs;
        if (at < all) source.Load(m, at - m * packs, v[i]);
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

  /// Shared: of row `m`, for each 32 values of it.
  TW_DEVICE float* Squares(int m) const {
    return reinterpret_cast<float*>(x + (m * x_bytes + x_scales + x_scales / 4));
  }
  /// Eight of the norm's weights, f32, that this thread needs first.
  TW_DEVICE void LoadWeights(const void* norm, float (&weights)[8]) const {
    const int pack = static_cast<int>(threadIdx.x);
    if (8 * pack < k) LoadPack<Type::kF32, 8>(norm, 8 * pack, weights);
  }

  /// Calls use(m, pack, inside, v) for every eight values of x, the four threads of a block of 32 as
  /// neighbours. `first`: those that this thread comes to first.
  template <class Source, class Use>
  TW_DEVICE void ForEachPack(const Source& source, const float (&first)[8], Use use) const {
    const int packs = k / 8, thread = static_cast<int>(threadIdx.x);
    TW_NO_UNROLL
    for (int m = 0; m < rows; ++m) {
      TW_NO_UNROLL
      for (int from = 0; from < packs; from += 32 * kWarps) {
        const int pack = from + thread;
        float v[8];
        TW_UNROLL
        for (int i = 0; i < 8; ++i) v[i] = first[i];
        if ((m > 0 || from > 0) && pack < packs) source.Load(m, pack, v);
        use(m, pack, pack < packs, v);
      }
    }
  }

  /// The same of rows that are normalised. `weights`: of LoadWeights.
  template <class Source>
  TW_DEVICE void NormAndRoundX(const Source& source, const void* norm, float epsilon,
                               const float (&weights)[8]) const {
    float first[8] = {};
    if (static_cast<int>(threadIdx.x) < k / 8) source.Load(0, static_cast<int>(threadIdx.x), first);
    ForEachPack(source, first, [&](int m, int pack, bool inside, const float(&v)[8]) {
      const float sum = SquaresOfEight(v);
      if (inside && pack % 4 == 0) Squares(m)[pack / 4] = sum;
    });
    __syncthreads();  // the squares of all rows are there before any warp adds them up
    int scaled = -1;  // the row that `scale` is of
    float scale = 0.0f;
    ForEachPack(source, first, [&](int m, int pack, bool inside, float(&v)[8]) {
      if (m != scaled) scale = NormScale(Squares(m), k, epsilon);
      scaled = m;
      float w[8];
      TW_UNROLL
      for (int i = 0; i < 8; ++i) w[i] = weights[i];
      if (inside && pack >= 32 * kWarps) LoadPack<Type::kF32, 8>(norm, 8 * pack, w);
      TW_UNROLL
      for (int i = 0; i < 8; ++i) v[i] = v[i] * scale * w[i];
      RoundPack(pack, inside, v, x + m * x_bytes);
    });
  }
  TW_DEVICE void RoundPack(int pack, bool inside, const float (&v)[8], u8* to) const {
    PutPack(pack, inside, RoundEight(v), to);
  }
  /// To where the format has them.
  TW_DEVICE void PutPack(int pack, bool inside, RoundedEight rounded, u8* to) const {
    int quarter = pack % 4;
    if constexpr (kInterleavesX<F>) quarter = Interleave(quarter, rounded.words);
    if (!inside) return;
    const Int8Place place = F::PlaceOf(pack / 4);
    const int plane = 2 * place.half + quarter / 2;
    const int line = place.chunk / 32 * (2 * kHalves) + plane;
    StoreShared8(
        SmemAddress(to) + static_cast<u32>(line * 512 + place.chunk % 32 * 16 + quarter % 2 * 8),
        rounded.words[0], rounded.words[1]);
    if (pack % 4 == 0) {
      StoreShared8(
          SmemAddress(to) + static_cast<u32>(x_scales + (place.chunk * kHalves + place.half) * 8),
          BitsOf(rounded.scale), BitsOf(rounded.sum));
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
};

}  // namespace tw
