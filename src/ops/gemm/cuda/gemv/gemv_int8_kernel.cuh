#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/int8.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/silu.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemv/int8_codes.cuh"
#include "ops/gemm/cuda/gemv/int8_ring.cuh"
#include "tilewright/cuda/gemv_params.h"

// Few rows of x, rounded to int8 in blocks of 32, times a matrix of weights in blocks, at the rate
// of memory. As many CTAs as multiprocessors, each with a contiguous part of the rows of W and all
// of x in shared memory, which it rounds itself. A warp takes kRows rows of W at a time and reads
// them as one stream of segments through a ring of its own (int8_ring.cuh). Lanes multiply chunks side
// by side (int8_codes.cuh): about one instruction a weight, where tensor cores with bf16 of gemv_q take
// three.
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

template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM,
          int kRows, int kWarps, int kSegmentValues, int kStages, bool kNorm, bool kBulk>
struct GemvInt8 {
  static constexpr bool kGated = kEpilogue == Epilogue::kSwiGlu;
  using Ring = GemvInt8Ring<kTypeW, kGated, kRows, kWarps, kSegmentValues, kStages, kBulk>;
  using F = typename Ring::F;
  static constexpr int kColumns = Ring::kColumns;
  static constexpr int kTurnValues = 32 * F::kChunk;
  static constexpr int kTurns = (kSegmentValues + kTurnValues - 1) / kTurnValues;
  static_assert(kSegmentValues % kTurnValues == 0 || kSegmentValues < kTurnValues,
                "whole chunks for every lane, or rows of one segment");
  static constexpr int kHalves = F::kChunk / 32;  // of a chunk, each with a scale
  static constexpr int kSums = kRows * kTileM;    // of a unit, one for each row of W and of x
  static_assert(kSums <= 32 && (kSums & (kSums - 1)) == 0 && kRows <= 8, "a lane for each sum");

  const GemvParams& p;
  const Ring& ring;
  u8* x;  // shared: [kTileM][x_bytes]: bytes, [32 chunks][planes of 16 bytes][32], then scales, and
          // with kNorm sums of squares
  int lane, warp;
  int chunks;             // of a row
  int x_scales, x_bytes;  // bytes to the scales of a row of x, and of a row of x
  int begin, end;         // units of this CTA

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
    sums += __shfl_xor_sync(kAllLanes, sums, 1);
    const float others = __shfl_xor_sync(kAllLanes, sums, 2);
    if constexpr (kHasSumsOf16<F>) {
      const u32 first = static_cast<u32>(static_cast<int>(sums));
      sums = FloatOf(PermuteBytes(first, static_cast<u32>(static_cast<int>(others)), 0x5410u));
    } else {
      sums += others;
    }
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

  /// Of row `m` the chunk of this lane of 32 side by side, from chunk 32 * `turn` on.
  TW_DEVICE void LoadX(int m, int turn, u32 (&bytes)[F::kChunk / 4],
                       float (&scales)[kHalves][2]) const {
    const u8* row = x + m * x_bytes;
    const u8* at = row + (turn * (1024 * kHalves) + lane * 16);
    TW_UNROLL
    for (int plane = 0; plane < 2 * kHalves; ++plane) {
      const U32x4 v = *reinterpret_cast<const U32x4*>(at + 512 * plane);
      TW_UNROLL
      for (int i = 0; i < 4; ++i) bytes[4 * plane + i] = v.v[i];
    }
    const u8* from = row + (x_scales + (turn * 32 + lane) * (8 * kHalves));
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
      const int of_row = segment * kTurns + turn;
      if (of_row * 32 + lane >= chunks) continue;
      typename F::Chunk w[kRows];
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) {
        w[r] = F::Load(stage + r * Ring::kRowBytes, skips[r], turn * 32 + lane);
      }
      TW_UNROLL
      for (int m = 0; m < kTileM; ++m) {
        u32 bytes[F::kChunk / 4];
        float scales[kHalves][2];
        LoadX(m, of_row, bytes, scales);
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
    auto copied = ring.Start(begin + warp);
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
    auto stage = ring.FirstStage();
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
      ring.SkipsOf(unit, skips);
      float sums[kSums] = {};
      TW_NO_UNROLL
      for (int segment = 0; segment < ring.segments; ++segment) {
        ring.Take(stage, unit < end, copied);
        if (unit < end) Multiply(segment, ring.ring + stage.at, skips, sums);
        ring.Advance(stage);
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
          int kRows, int kWarps, int kSegmentValues, int kStages, bool kNorm = false,
          bool kBulk = false>
TW_DEVICE void GemvInt8Run(const GemvParams& p, u8* smem) {
  using Kernel = GemvInt8<kTypeX, kTypeW, kTypeC, kTypeY, kEpilogue, kTileM, kRows, kWarps,
                          kSegmentValues, kStages, kNorm, kBulk>;
  using Ring = typename Kernel::Ring;
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
  const int x_values = segments * Kernel::kTurns * Kernel::kTurnValues;
  const int x_bytes = tilewright::cuda::GemvInt8XBytes(x_values, kNorm);
  u8* x = smem + kWarps * kStages * Ring::kStageBytes;
  const u32 landed = SmemAddress(x) + static_cast<u32>(kTileM * x_bytes + warp * kStages * 8);
  const int begin = border(blockIdx.x), end = border(blockIdx.x + 1);
  const Ring ring{p,
                  smem + warp * (kStages * Ring::kStageBytes),
                  landed,
                  ReadOncePolicy(),
                  lane,
                  segments,
                  p.k / F::kBlock * F::kBytes,
                  end,
                  whole};
  const Kernel kernel{p, ring, x, lane, warp, p.k / F::kChunk, x_values, x_bytes, begin, end};
  LaunchDependentsIfSparse();
  if (p.w_constant == 0) WaitForPrerequisites();
  kernel.Run();
  LaunchDependents();
}

}  // namespace tw
