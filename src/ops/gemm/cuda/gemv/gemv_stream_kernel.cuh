#pragma once

#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/silu.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "tilewright/cuda/gemv_params.h"

// One row of x times a matrix of bf16 or f16 weights, at the rate of memory: as many CTAs as
// multiprocessors, each with a contiguous part of the rows of W and all of x in shared memory. A
// warp takes whole rows and reads them as one stream of segments through a ring of its own in
// shared memory (cp.async), kStages - 1 segments ahead of use, across the ends of rows. Every lane
// reads only what it copied itself, so that nothing but its own copies has to be waited for.
//
// A row that is to be normalised first (kNorm) every CTA normalises itself, in f32, where it lies in
// shared memory; squares are summed in an order that k alone decides.
//
// A sum is that of one warp: in every lane over ascending k, then over the lanes. The order depends
// on k alone: a row of y has the same bits on every GPU and in every batch.

namespace tw {

using tilewright::cuda::GemvParams;

template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kWarps,
          int kSpans, int kStages, bool kNorm>
struct GemvStream {
  static constexpr int kPack = 8;  // values of a copy
  static constexpr int kSegmentPacks = 32 * kSpans;
  static constexpr int kSegmentValues = kPack * kSegmentPacks;
  static constexpr int kStageBytes = 16 * kSegmentPacks;
  static constexpr int kRowsOfUnit = kEpilogue == Epilogue::kSwiGlu ? 2 : 1;
  static constexpr Type kTypeStaged = kNorm ? Type::kF32 : kTypeX;
  static constexpr int kPlanes = FloatBytes<kTypeStaged>() / 2;  // 16-byte parts of eight values

  const GemvParams& p;
  i64 row;         // of x and y
  u32 xs;          // shared: x, [spans of all segments][kPlanes][32 lanes] of 16 bytes
  float* squares;  // shared: with kNorm, of each 32 values of x
  u32 ring;        // shared: of this warp and lane, [kStages][kSpans][32 lanes] of 16 bytes
  int lane;
  int warp;
  int packs, segments;  // of a row
  int begin, end;       // units of this CTA
  u64 policy;           // of lines that are read once

  /// Where the copies are: `row` of the unit `unit`, segment `segment` of it, to stage `stage`.
  struct Cursor {
    const u8* row;
    int unit, of_unit, segment, stage;
  };

  /// Row `of_unit` of W of a unit: what makes one element of y.
  TW_DEVICE const u8* RowOf(int unit, int of_unit) const {
    int row = unit;
    if constexpr (kEpilogue == Epilogue::kSwiGlu) {
      constexpr int kBlock = tilewright::cuda::kGemvGatedBlock;
      row = unit / kBlock * (2 * kBlock) + of_unit * kBlock + unit % kBlock;
    }
    return static_cast<const u8*>(p.w) + row * p.w_row_bytes;
  }

  /// Starts the copy of a segment, if there still is one, and moves on. Zeros behind the row.
  TW_DEVICE void Copy(Cursor& at) const {
    if (at.unit < end) {
      const u32 to = ring + static_cast<u32>(at.stage * kStageBytes);
      const int pack = at.segment * kSegmentPacks + lane;
      const u8* from = at.row + static_cast<i64>(pack) * 16;
      if ((at.segment + 1) * kSegmentPacks <= packs) {
        TW_UNROLL
        for (int i = 0; i < kSpans; ++i) CpAsync16Once(to + 512 * i, from + 512 * i, policy);
      } else {
        TW_UNROLL
        for (int i = 0; i < kSpans; ++i) {
          const bool inside = pack + 32 * i < packs;
          CpAsync16(to + 512 * i, inside ? from + 512 * i : at.row, inside ? 16 : 0);
        }
      }
    }
    CpAsyncCommit();
    at.stage = at.stage + 1 == kStages ? 0 : at.stage + 1;
    if (++at.segment < segments) return;
    at.segment = 0;
    if (++at.of_unit == kRowsOfUnit) {
      at.of_unit = 0;
      at.unit += kWarps;
    }
    if (at.unit < end) at.row = RowOf(at.unit, at.of_unit);
  }

  /// x to shared memory, zeros behind it.
  TW_DEVICE void StageX() const {
    const u8* x = static_cast<const u8*>(p.x) + row * p.ldx * FloatBytes<kTypeX>();
    const int all = segments * kSegmentPacks;
    TW_NO_UNROLL
    for (int pack = static_cast<int>(threadIdx.x); pack < all; pack += 32 * kWarps) {
      TW_UNROLL
      for (int plane = 0; plane < kPlanes; ++plane) {
        U32x4 v{{0, 0, 0, 0}};
        if (pack < packs)
          v = *reinterpret_cast<const U32x4*>(x + (static_cast<i64>(pack) * kPlanes + plane) * 16);
        const int at = (pack / 32 * kPlanes + plane) * 32 + pack % 32;
        StoreShared16(xs + static_cast<u32>(16 * at), v.v[0], v.v[1], v.v[2], v.v[3]);
      }
    }
  }

  TW_DEVICE static int ThreadInCta() { return static_cast<int>(threadIdx.x); }
  /// Where part `plane` of eight values of x lies.
  TW_DEVICE u32 PlaceOf(int pack, int plane) const {
    return xs + static_cast<u32>(16 * ((pack / 32 * kPlanes + plane) * 32 + pack % 32));
  }
  TW_DEVICE void StorePlaces(int pack, const float (&v)[kPack]) const {
    TW_UNROLL
    for (int i = 0; i < 2; ++i) {
      StoreShared16(PlaceOf(pack, i), BitsOf(v[4 * i]), BitsOf(v[4 * i + 1]), BitsOf(v[4 * i + 2]),
                    BitsOf(v[4 * i + 3]));
    }
  }
  /// The norm's weights for the eight values that this thread stages first.
  TW_DEVICE void LoadWeights(float (&weights)[kPack]) const {
    if (ThreadInCta() < packs) LoadPack<Type::kF32, kPack>(p.norm, kPack * ThreadInCta(), weights);
  }
  /// The same of a row that is normalised. `weights`: of LoadWeights.
  TW_DEVICE void StageNormed(const float (&weights)[kPack]) const {
    const i64 x = row * p.ldx;
    const int all = segments * kSegmentPacks;
    TW_NO_UNROLL
    for (int first = 0; first < all; first += 32 * kWarps) {  // all warps meet the same shuffles
      const int pack = first + ThreadInCta();
      float v[kPack] = {}, sum = 0.0f;
      if (pack < packs) LoadPack<kTypeX, kPack>(p.x, x + kPack * pack, v);
      if (pack < all) StorePlaces(pack, v);
      TW_UNROLL
      for (int i = 0; i < kPack; ++i) sum = Fma(v[i], v[i], sum);
      TW_UNROLL
      for (int step = 1; step <= 2; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
      if (pack < all && pack % 4 == 0) squares[pack / 4] = sum;
    }
    __syncthreads();  // all squares are there before any warp adds them up
    float sum = 0.0f;
    TW_NO_UNROLL
    for (int i = lane; i < (packs + 3) / 4; i += 32) sum += squares[i];
    const float scale = InverseRoot(WarpSum(sum) / static_cast<float>(p.k) + p.epsilon);
    TW_NO_UNROLL
    for (int pack = ThreadInCta(); pack < packs; pack += 32 * kWarps) {
      float v[kPack], w[kPack];
      TW_UNROLL
      for (int i = 0; i < kPack; ++i) w[i] = weights[i];
      if (pack >= 32 * kWarps) LoadPack<Type::kF32, kPack>(p.norm, kPack * pack, w);
      TW_UNROLL
      for (int i = 0; i < 2; ++i) {
        u32 bits[4];
        LoadShared16(bits, PlaceOf(pack, i));
        TW_UNROLL
        for (int j = 0; j < 4; ++j) v[4 * i + j] = FloatOf(bits[j]) * scale * w[4 * i + j];
      }
      StorePlaces(pack, v);
    }
  }

  /// Eight values of x: of this lane in span `span` of the row.
  TW_DEVICE void LoadX(int span, float (&x)[kPack]) const {
    const u32 at = xs + static_cast<u32>((span * kPlanes * 32 + lane) * 16);
    TW_UNROLL
    for (int plane = 0; plane < kPlanes; ++plane) {
      u32 v[4];
      LoadShared16(v, at + 512 * plane);
      TW_UNROLL
      for (int i = 0; i < 4; ++i) {
        if constexpr (kTypeStaged == Type::kF32) {
          x[4 * plane + i] = FloatOf(v[i]);
        } else {
          x[2 * i] = LowToF32<kTypeX>(v[i]);
          x[2 * i + 1] = HighToF32<kTypeX>(v[i]);
        }
      }
    }
  }

  TW_DEVICE void Multiply(int segment, int stage, float (&sums)[4]) const {
    TW_UNROLL
    for (int i = 0; i < kSpans; ++i) {
      u32 w[4];
      LoadShared16(w, ring + static_cast<u32>(stage * kStageBytes + 512 * i));
      float x[kPack];
      LoadX(segment * kSpans + i, x);
      TW_UNROLL
      for (int j = 0; j < 4; ++j) {
        sums[j] = Fma(LowToF32<kTypeW>(w[j]), x[2 * j], sums[j]);
        sums[j] = Fma(HighToF32<kTypeW>(w[j]), x[2 * j + 1], sums[j]);
      }
    }
  }

  /// `sums`: of the rows of a unit, in every lane.
  TW_DEVICE void Store(int unit, const float (&sums)[kRowsOfUnit]) const {
    float value = p.alpha * sums[0];
    if constexpr (kEpilogue == Epilogue::kSwiGlu) value = SiluOf(value) * (p.alpha * sums[1]);
    if constexpr (kTypeC != Type::kNone) {
      if (p.beta != 0.0f) value = Fma(p.beta, LoadElement<kTypeC>(p.c, row * p.ldc + unit), value);
    }
    StoreElement<kTypeY>(p.y, row * p.ldy + unit, value);
  }

  TW_DEVICE void Run() const {
    Cursor copied{nullptr, begin + warp, 0, 0, 0};
    if (copied.unit < end) copied.row = RowOf(copied.unit, 0);
    TW_NO_UNROLL
    for (int i = 0; i < kStages - 1; ++i) Copy(copied);
    if constexpr (kNorm) {
      float weights[kPack] = {};
      LoadWeights(weights);
      WaitForPrerequisites();  // the kernels before this one write x
      StageNormed(weights);
    } else {
      WaitForPrerequisites();  // the same
      StageX();
    }
    __syncthreads();  // all of x is there before any warp multiplies
    int stage = 0;
    // All warps of a CTA make the same number of rounds, so that they meet the same shuffles.
    TW_NO_UNROLL
    for (int round = begin; round < end; round += kWarps) {
      const int unit = round + warp;
      float sums[kRowsOfUnit];
      TW_UNROLL
      for (int r = 0; r < kRowsOfUnit; ++r) {
        float parts[4] = {};
        TW_NO_UNROLL
        for (int segment = 0; segment < segments; ++segment) {
          CpAsyncWait<kStages - 2>();  // this lane's part of the segment has landed
          Copy(copied);                // over the segment before, which this lane has read
          if (unit < end) Multiply(segment, stage, parts);
          stage = stage + 1 == kStages ? 0 : stage + 1;
        }
        sums[r] = WarpSum((parts[0] + parts[1]) + (parts[2] + parts[3]));
      }
      if (unit < end && lane == 0) Store(unit, sums);
    }
  }
};

/// The whole kernel, for row `row` of x. `smem`: shared, GemvStreamSmem bytes, aligned to 16.
template <Type kTypeX, Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kWarps,
          int kSpans, int kStages, bool kNorm = false>
TW_DEVICE void GemvStreamRun(const GemvParams& p, i64 row, u8* smem) {
  using Stream =
      GemvStream<kTypeX, kTypeW, kTypeC, kTypeY, kEpilogue, kWarps, kSpans, kStages, kNorm>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int packs = p.k / Stream::kPack;
  const int units = p.n / Stream::kRowsOfUnit;
  const auto border = [&](unsigned int cta) {
    return static_cast<int>(static_cast<i64>(units) * cta / gridDim.x);
  };
  const u32 ring =
      SmemAddress(smem) + static_cast<u32>(warp * (kStages * Stream::kStageBytes) + 16 * lane);
  const u32 xs = SmemAddress(smem) + static_cast<u32>(kWarps * kStages * Stream::kStageBytes);
  const int segments = (packs + Stream::kSegmentPacks - 1) / Stream::kSegmentPacks;
  float* squares = reinterpret_cast<float*>(smem + kWarps * kStages * Stream::kStageBytes +
                                            segments * Stream::kSegmentValues * 4);
  const Stream stream{p,
                      row,
                      xs,
                      squares,
                      ring,
                      lane,
                      warp,
                      packs,
                      segments,
                      border(blockIdx.x),
                      border(blockIdx.x + 1),
                      ReadOncePolicy()};
  LaunchDependentsIfSparse();
  if (p.w_constant == 0) WaitForPrerequisites();
  stream.Run();
  LaunchDependents();
}

}  // namespace tw
