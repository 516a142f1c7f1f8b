#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/predicated.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/tma.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/wgmma.cuh"
#include "device/cuda/kernels/wgmma_registers.cuh"
#include "ops/gemm/cuda/gemm_q/output.cuh"
#include "ops/gemm/cuda/gemm_qw/layout.h"
#include "ops/gemm/cuda/gemm_qw/scaled_rows.cuh"
#include "tilewright/cuda/gemm_qw_params.h"

// Some rows of x times a matrix of weights in blocks, by wgmma: 64 rows of W, as f16 in registers,
// are A; the rows of x, also in f16, are B. Where f16 does not hold a k-tile as it is, each row of it is
// divided by a power of two, and the sums of the k-tile are multiplied by those. The sums of each k-tile are
// added in f32: tensor cores cut off what of a product is far below their sum.
//
// A CTA has kStrips * kParts warpgroups that multiply, and one that fills the ring of kStages k-tiles:
// the copy engine brings W as it lies in memory; the threads bring x, since they convert it and turn it
// around on the way. A strip is 64 rows of W; the kParts warpgroups of a strip take quarters of every k-tile.
// The ring runs on from one product to the next where a kernel computes several (gemm_chain).
//
// The CTAs divide the k-tiles of all output tiles evenly, so that they end together: the first and the
// last output tile of a CTA may be shared with its neighbours. A CTA begins with the last one. What becomes of the
// sums of a tile, or of a part of it, is for the kernel to say.

namespace tw {

using tilewright::cuda::GemmQKTiles;
using tilewright::cuda::GemmQwBegin;
using tilewright::cuda::GemmQwOwner;
using tilewright::cuda::GemmQwUnits;

/// `Params`: what GemmQwParams has of the names w, x, ldx, m, n and k. kXReady: x comes as PrepareX has made it, which
/// does not tell of a whole k-tile whether a row of it was divided.
template <Type kTypeW, int kTileM, int kTileN, int kParts, int kStages, class Params, bool kXReady>
struct QwProduct {
  using F = Codes<kTypeW>;
  using ItsParams = Params;
  static constexpr int kRowsOfTile = kTileM, kColumnsOfTile = kTileN;
  static constexpr int kTileK = tilewright::cuda::kGemmQTileK;
  static constexpr int kStrips = kTileN / 64;
  static constexpr int kConsumers = kStrips * kParts;  // warpgroups
  static constexpr int kThreads = 128 * kConsumers;    // that multiply; 128 more fill the ring
  static constexpr int kQuarters = 4 / kParts;         // of a k-tile of a warpgroup
  static_assert(kTileN % 64 == 0 && kTileM % 16 == 0 && kTileM <= 128, "shapes of wgmma");
  static_assert(kParts == 1 || kParts == 2 || kParts == 4, "whole quarters");

  // x lies in steps of 16 k, each [2][kTileM][8]: the even values of a row and then the odd ones, so that
  // codes 0, 2, 1 and 3 of a word, values 4 t .. 4 t + 3, are what a lane has of A: columns 2 t, 2 t + 1,
  // 2 t + 8 and 2 t + 9.
  static constexpr GemmQwLayout kLayout =
      GemmQwLayout::Of({F::kBytes, F::kBlock, kTileM, kTileN, kParts, kStages});
  static constexpr int kStepBytes = kTileM * 32;
  using Boxes = KTileBoxes<F>;

  const Params& p;
  u8* smem;
  u32 ring;  // its address
  int tiles_m, k_tiles;
  int begin, end;  // of the run of this CTA

  struct RingPosition {
    int stage = 0;
    u32 parity = 0;
    TW_DEVICE void Advance() {
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
  };
  TW_DEVICE u32 Full(int stage) const {
    return ring + static_cast<u32>(kLayout.barriers + 8 * stage);
  }
  TW_DEVICE u32 Empty(int stage) const { return Full(kStages + stage); }
  TW_DEVICE u32 Stage(int stage) const {
    return ring + static_cast<u32>(stage * kLayout.stage_bytes);
  }

  TW_DEVICE QwProduct(const Params& params, u8* smem_in)
      : p(params),
        smem(smem_in),
        ring(SmemAddress(smem_in)),
        tiles_m((params.m + kTileM - 1) / kTileM),
        k_tiles(GemmQKTiles(params.k)),
        begin(BeginOf(Cta())),
        end(BeginOf(Cta() + 1)) {}

  TW_DEVICE static int Cta() { return static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x); }
  TW_DEVICE static int Ctas() { return static_cast<int>(gridDim.x * gridDim.y); }

  TW_DEVICE i64 Units() const { return GemmQwUnits(p.m, p.n, p.k, kTileM, kTileN); }
  TW_DEVICE int BeginOf(int cta) const {
    return static_cast<int>(GemmQwBegin(Units(), cta, Ctas()));
  }

  // Whose run has a unit: the k-tile of an output tile.
  TW_DEVICE int OwnerOf(int unit) const { return GemmQwOwner(Units(), unit, Ctas()); }

  // A place in the run of a CTA: an output tile, one of its k-tiles, and the end of those of this CTA. The
  // last output tile of a run comes first: its other k-tiles are those of CTAs behind this one.
  struct Place {
    int tile, k_tile, k_end;
  };
  TW_DEVICE Place At(int tile, int until) const {
    const int of_tile = tile * k_tiles;
    return {tile, begin > of_tile ? begin - of_tile : 0,
            until - of_tile < k_tiles ? until - of_tile : k_tiles};
  }
  TW_DEVICE Place First() const { return At((end - 1) / k_tiles, end); }
  TW_DEVICE void Advance(Place& at) const {
    if (++at.k_tile == at.k_end) at = At(at.tile - 1, end);
  }

  // One thread: the copy engine brings a k-tile of W, in boxes of kBoxRows rows. A box that lies outside of W takes
  // longer than one inside: where all CTAs wait for the last one none is fetched.
  static constexpr int kBoxRows = kXReady ? 64 : kTileN;
  TW_DEVICE void FetchW(const Place& at, int stage) const {
    constexpr int kBoxes = kTileN / kBoxRows, kBoxBytes = kBoxRows * kLayout.line_bytes;
    const int n0 = at.tile / tiles_m * kTileN;
    const int inside = (p.n - n0 + kBoxRows - 1) / kBoxRows;
    const int boxes = inside < kBoxes ? inside : kBoxes;
    MbarrierArriveExpectTx(Full(stage), static_cast<u32>(boxes * kBoxBytes));
    TW_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      if (i < boxes)
        TmaLoad2D(Stage(stage) + static_cast<u32>(i * kBoxBytes), &p.w, Full(stage),
                  Boxes::UnitOf(at.k_tile, k_tiles), n0 + kBoxRows * i);
    }
  }

  // Of x, a lane brings 8 k of a row at a time, a warp 32 k of eight rows. Warps have groups of eight rows
  // of their own or, where there are fewer of those than warps, parts of k of their own.
  static constexpr int kGroups = kTileM / 8;
  static constexpr int kGroupsOfWarp = kGroups < 4 ? 1 : kGroups / 4;
  static constexpr int kWarpsOfGroup = kGroups < 4 ? 4 / kGroups : 1;
  static constexpr int kTasks = kGroupsOfWarp * (kTileK / 32 / kWarpsOfGroup);
  struct Rows {
    u32 v[kTasks][4];  // pairs
  };
  struct Task {
    int row, chunk;  // of x in a k-tile; of 8 k
    TW_DEVICE Task(int i, int warp, int lane)
        : row((warp % kGroups + i % kGroupsOfWarp * 4) * 8 + lane % 8),
          chunk((i / kGroupsOfWarp * kWarpsOfGroup + warp / kGroups) * 4 + lane / 8) {}
  };
  TW_DEVICE void LoadX(const Place& at, int warp, int lane, Rows& rows) const {
    const int m0 = at.tile % tiles_m * kTileM, k0 = at.k_tile * kTileK;
    const u8* from = static_cast<const u8*>(p.x) + (m0 * p.ldx + k0) * 2;
    TW_UNROLL
    for (int i = 0; i < kTasks; ++i) {
      const Task task(i, warp, lane);
      LoadGlobal16If(rows.v[i], from + (task.row * p.ldx + task.chunk * 8) * 2,
                     m0 + task.row < p.m && k0 + task.chunk * 8 < p.k);
    }
  }
  // The largest magnitude of a row of a k-tile, as far as this warp brings it; lanes r, r + 8, r + 16 and
  // r + 24 of row r.
  TW_DEVICE static float LargestOf(const Rows& rows, int group) {
    u32 largest = 0;
    TW_UNROLL
    for (int i = group; i < kTasks; i += kGroupsOfWarp) {
      TW_UNROLL
      for (const u32 pair : rows.v[i]) largest = MaxMagnitudeBF16x2(largest, pair);
    }
    TW_UNROLL
    for (int step = 8; step <= 16; step *= 2)
      largest = MaxMagnitudeBF16x2(largest, OfPartner(largest, step));
    return LargerOfPair(largest);
  }
  TW_DEVICE void StoreX(int stage, int warp, int lane, const Rows& rows) const {
    const int own = stage * kLayout.stage_bytes;
    bool divided = false;
    TW_UNROLL
    for (int group = 0; group < kGroupsOfWarp; ++group) {
      const int row = Task(group, warp, lane).row;
      float largest = LargestOf(rows, group);
      if constexpr (kWarpsOfGroup > 1) {
        float* const all = reinterpret_cast<float*>(smem + kLayout.largest);
        if (lane < 8) all[warp / kGroups * kTileM + row] = largest;
        NamedBarrier(2, 128);  // every part's is there
        largest = Larger(all[row], all[kTileM + row]);
      }
      const bool plain = !InAnyLane(!FitsAsX(largest));
      const PowerOfTwo power = plain ? PowerOfTwo{1.0f, 1.0f} : PowerOfTwo::For(largest);
      if (lane < 8 && warp / kGroups == 0)
        reinterpret_cast<float*>(smem + (own + kLayout.divisors))[row] = power.inverse;
      if (plain) {
        StoreChunks(stage, group, warp, lane, rows, [](float value) { return value; });
      } else {
        divided = true;
        StoreChunks(stage, group, warp, lane, rows,
                    [&](float value) { return value * power.factor; });
      }
      if constexpr (kWarpsOfGroup > 1) NamedBarrier(2, 128);  // and has been read
    }
    if (lane == 0)
      StoreShared4(Stage(stage) + static_cast<u32>(kLayout.divided + 4 * warp), divided);
    FenceBeforeTma();  // wgmma reads it as the copy engine would
    __syncwarp();
    if (lane == 0) MbarrierArrive(Full(stage));
  }
  // Eight values of x, as f16: the even and the odd ones.
  template <class Scale>
  TW_DEVICE static void SplitX(const u32 (&pairs)[4], Scale scaled, u32 (&even)[2], u32 (&odd)[2]) {
    TW_UNROLL
    for (int j = 0; j < 2; ++j) {
      SplitFour(pairs[2 * j], pairs[2 * j + 1], scaled, even[j], odd[j]);
    }
  }
  // Where the even ones go in x of a k-tile; the odd ones go kStepBytes / 2 behind them.
  TW_DEVICE static int XAt(int row, int chunk) {
    return chunk / 2 * kStepBytes + row * 16 + chunk % 2 * 8;
  }
  template <class Scale>
  TW_DEVICE void StoreChunks(int stage, int group, int warp, int lane, const Rows& rows,
                             Scale scaled) const {
    TW_UNROLL
    for (int i = group; i < kTasks; i += kGroupsOfWarp) {
      const Task task(i, warp, lane);
      u32 even[2], odd[2];
      SplitX(rows.v[i], scaled, even, odd);
      const u32 to = Stage(stage) + static_cast<u32>(kLayout.w_bytes + XAt(task.row, task.chunk));
      StoreShared8(to, even[0], even[1]);
      StoreShared8(to + kStepBytes / 2, odd[0], odd[1]);
    }
  }

  // By one thread, first of all: the barriers of the ring. `fillers` arrive at a stage that they have filled:
  // one with the bytes of W and, of x, each warp that brings it or one with its bytes.
  TW_DEVICE static void InitRing(u8* smem, u32 fillers) {
    for (int i = 0; i < kStages; ++i) {
      const u32 full = SmemAddress(smem) + static_cast<u32>(kLayout.barriers + 8 * i);
      MbarrierInit(full, fillers);
      MbarrierInit(full + 8 * kStages, 4 * kConsumers);  // a lane of each warp
    }
    FenceBarrierInit();
  }

  // By one thread, in front of Produce: the first k-tiles of W, at most `most`, on their way as stages become free.
  TW_DEVICE void FetchFirst(RingPosition to, int most = kStages) const {
    const int count = end - begin;
    const int fetched = count < most ? count : most;
    Place at = First();
    TW_NO_UNROLL
    for (int i = 0; i < fetched; ++i) {
      MbarrierWait(Empty(to.stage), to.parity ^ 1);  // of a fresh barrier parity 1 passes
      FetchW(at, to.stage);
      Advance(at);
      to.Advance();
    }
  }

  // The warpgroup that fills the ring, behind FetchFirst. x is loaded before there is room for it, two k-tiles
  // ahead where a warp has the registers for it.
  static constexpr int kAhead = kTasks <= 8 && kThreads <= 384 ? 2 : 1;
  // K-tiles of W that are fetched in front of x, whose loads would have to wait for more of them.
  static constexpr int kInFrontOfX = 2;
  TW_DEVICE void Produce(int warp, int lane) const {
    const bool leader = warp == 0 && lane == 0;
    const int count = end - begin;
    Place at_w = First(), at_x = at_w;
    Rows rows[kAhead];
    TW_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      if (j < count) LoadX(at_x, warp, lane, rows[j]);
      Advance(at_x);
    }
    TW_NO_UNROLL
    for (int i = 0; i < kStages; ++i) {
      if (leader && i >= kInFrontOfX && i < count) FetchW(at_w, i);
      Advance(at_w);
    }
    RingPosition at;
    TW_NO_UNROLL
    for (int first = 0; first < count; first += kAhead) {
      TW_UNROLL
      for (int j = 0; j < kAhead; ++j) {
        const int i = first + j;
        if (i >= count) break;
        MbarrierWait(Empty(at.stage), at.parity ^ 1);  // it has been read
        if (i >= kStages) {
          if (leader) FetchW(at_w, at.stage);
          Advance(at_w);
        }
        StoreX(at.stage, warp, lane, rows[j]);
        if (i + kAhead < count) LoadX(at_x, warp, lane, rows[j]);
        Advance(at_x);
        at.Advance();
      }
    }
  }

  // ---- x as all CTAs of a kernel have made it ready for each other, in memory: of every k-tile what a stage
  // has of it. tiles_m is 1.

  static constexpr int kXBytes = kLayout.x_bytes(kTileM);
  static_assert(kXBytes % 16 == 0, "a bulk copy");

  // The warps that multiply make x ready, each a row of a k-tile at a time. `pairs_of(row, k, pairs)` gives eight
  // values of a row from value k on, in bf16; zeros beyond its end.
  template <class PairsOf>
  TW_DEVICE void PrepareX(u8* to, int warp, int lane, PairsOf pairs_of) const {
    constexpr int kWarps = 4 * kConsumers;
    TW_NO_UNROLL
    for (int i = Cta() * kWarps + warp; i < k_tiles * kTileM; i += Ctas() * kWarps) {
      const int row = i % kTileM, k_tile = i / kTileM;
      u32 pairs[4], even[2], odd[2];
      pairs_of(row, k_tile * kTileK + lane * 8, pairs);
      u32 largest = 0;
      TW_UNROLL
      for (const u32 pair : pairs) largest = MaxMagnitudeBF16x2(largest, pair);
      TW_UNROLL
      for (int step = 1; step <= 16; step *= 2)
        largest = MaxMagnitudeBF16x2(largest, OfPartner(largest, step));
      const float bound = LargerOfPair(largest);
      const PowerOfTwo power = FitsAsX(bound) ? PowerOfTwo{1.0f, 1.0f} : PowerOfTwo::For(bound);
      SplitX(
          pairs, [&](float value) { return value * power.factor; }, even, odd);
      u8* const tile = to + i64{k_tile} * kXBytes;
      u8* const at = tile + XAt(row, lane);
      *reinterpret_cast<U32x2*>(at) = {{even[0], even[1]}};
      *reinterpret_cast<U32x2*>(at + kStepBytes / 2) = {{odd[0], odd[1]}};
      if (lane == 0) reinterpret_cast<float*>(tile + (kXBytes - kTileM * 4))[row] = power.inverse;
    }
  }
  // One thread: the copy engine brings x of a k-tile.
  TW_DEVICE void FetchX(const u8* from, const Place& at, int stage) const {
    MbarrierArriveExpectTx(Full(stage), kXBytes);
    BulkCopy(Stage(stage) + static_cast<u32>(kLayout.w_bytes), from + i64{at.k_tile} * kXBytes,
             kXBytes, Full(stage));
  }
  // One thread fills the ring: W as stages become free, x when `wait()` has returned.
  template <class Wait>
  TW_DEVICE void Fetch(const u8* x, RingPosition& at, Wait wait) const {
    FetchFirst(at);
    wait();
    const int count = end - begin;
    Place place = First();
    TW_NO_UNROLL
    for (int i = 0; i < count; ++i) {
      if (i >= kStages) {
        MbarrierWait(Empty(at.stage), at.parity ^ 1);
        FetchW(place, at.stage);
      }
      FetchX(x, place, at.stage);
      Advance(place);
      at.Advance();
    }
  }

  static constexpr int kBlocks = 2 * kQuarters;  // sub-blocks of a part of a k-tile
  using TwoRows = ScaledRows<kTypeW, kParts, kLayout.line_bytes>;
  using Raw = typename TwoRows::Raw;
  // Of the rows of x.
  TW_DEVICE const float* DivisorsOf(int stage) const {
    return reinterpret_cast<const float*>(smem + (stage * kLayout.stage_bytes + kLayout.divisors));
  }
  // A k-tile that has landed, its first sub-block, and whether f16 holds all of it in this warp.
  struct Opened {
    TwoRows rows;
    Raw raw[2];
    bool plain;
  };
  TW_DEVICE Opened Open(const RingPosition& at, int k_tile, int line, int part, int lane) const {
    MbarrierWait(Full(at.stage), at.parity);
    Opened tile;
    tile.rows.first = TwoRows::Line::At(smem + (at.stage * kLayout.stage_bytes + line),
                                        Boxes::SkipOf(k_tile, k_tiles), part);
    bool fits = true;
    tile.rows.SetPlain(lane, fits);
    tile.rows.LoadFirst(lane, tile.raw);
    if constexpr (kXReady) {
      const float* const divisors = DivisorsOf(at.stage);
      TW_UNROLL
      for (int i = 0; i < kTileM; i += 32) fits = divisors[i + lane % kTileM] == 1.0f && fits;
    } else {
      u32 divided[4];
      LoadShared16(divided, Stage(at.stage) + static_cast<u32>(kLayout.divided));
      fits = fits && (divided[0] | divided[1] | divided[2] | divided[3]) == 0;
    }
    tile.plain = !InAnyLane(!fits);
    return tile;
  }

  // The lower half of the descriptor of the first step of a part of x; the upper one is the same for all.
  TW_DEVICE u32 DescribeX(int stage, int part) const {
    const int at = kLayout.w_bytes + TwoRows::Line::First(part) * 2 * kStepBytes;
    return static_cast<u32>(
        WgmmaPlainDescriptor(Stage(stage) + static_cast<u32>(at), kStepBytes / 2, 128));
  }

  // Sub-block kJ of the part and those behind it. `x`: descriptor of the first step of the part; `raw`: of
  // sub-block kJ.
  template <int kJ>
  TW_DEVICE void Multiply(const TwoRows& rows, const Raw (&raw)[2], u32 x, int lane,
                          float (&acc)[kTileM / 2]) const {
    if constexpr (kJ < kBlocks) {
      // Behind the products nothing is read ahead: the compiler moves no load over them.
      Raw next[2];
      if constexpr (kJ + 1 < kBlocks) rows.template LoadNext<kJ + 1>(lane, raw, next);
      u32 a[2][4];
      TwoRows::template WordsOfA<kJ>(raw, a);
      constexpr u64 kUpperHalf = static_cast<u64>(128 >> 4) << 32;    // of the descriptor
      constexpr int kStep = 2 * TwoRows::Line::template kOffset<kJ>;  // of 16 k, from the first
      WgmmaFence();
      TW_UNROLL
      for (int h = 0; h < 2; ++h)
        WgmmaRegistersKMajor<kTileM>(
            acc, a[h], kUpperHalf | (x + static_cast<u32>((kStep + h) * (kStepBytes >> 4))));
      WgmmaCommit();
      // One sub-block is multiplied while the next is unpacked.
      WgmmaWait<1>();
      Multiply<kJ + 1>(rows, next, x, lane, acc);
    } else {
      WgmmaWaitForAll(acc);
    }
  }

  // Makes a k-tile one that f16 holds. All warps of a warpgroup multiply by the same instructions, so there is
  // one Multiply for those that need this and for those that do not.
  TW_DEVICE static void Divide(Opened& tile, int lane) {
    PowerOfTwo powers[2];
    tile.rows.SetDivided(lane, powers);
    tile.rows.LoadFirst(lane, tile.raw);
  }
  // Its sums, times what was divided by. The powers are found again, since they would take registers.
  TW_DEVICE void AddDivided(TwoRows& rows, int stage, int lane, const float (&sums)[kTileM / 2],
                            float (&acc)[kTileM / 2]) const {
    PowerOfTwo powers[2];
    rows.SetDivided(lane, powers);
    const float* const divisors = DivisorsOf(stage);
    TW_UNROLL
    for (int i = 0; i < kTileM / 2; ++i) {
      const float of_x = divisors[i / 4 * 8 + lane % 4 * 2 + i % 2];
      acc[i] = Fma(sums[i] * powers[i / 2 % 2].inverse, of_x, acc[i]);
    }
    __syncwarp();  // all lanes have read the stage
  }

  // Puts this warp's sums in place, [kParts][kTileM][kSumPitch].
  TW_DEVICE static void StageSums(float* sums, int part, int row, int lane,
                                  const float (&acc)[kTileM / 2]) {
    constexpr int kPitch = kLayout.sum_pitch;
    float* own = sums + ((part * kTileM + lane % 4 * 2) * kPitch + row + lane / 4);
    TW_UNROLL
    for (int i = 0; i < kTileM / 2; ++i) own[(i / 4 * 8 + i % 2) * kPitch + i / 2 % 2 * 8] = acc[i];
  }

  using OwnSums = StagedSums<kTileM, kParts, kLayout.sum_pitch>;

  // A warpgroup that multiplies. Of every output tile that this CTA has k-tiles of all threads that multiply call
  // finish.Begin(place), and when its sums are in place finish.End(place, sums).
  template <class Finish>
  TW_DEVICE void Consume(int warp, int lane, RingPosition& at, Finish finish) const {
    const int part = warp / 4 % kParts, row = warp / (4 * kParts) * 64 + warp % 4 * 16;
    const int line = (row + lane / 4) * kLayout.line_bytes;  // in a stage
    TW_NO_UNROLL
    for (int until = end; until > begin;) {
      const Place place = At((until - 1) / k_tiles, until);
      finish.Begin(place);
      float acc[kTileM / 2];
      TW_UNROLL
      for (float& value : acc) value = 0.0f;
      Opened tile = Open(at, place.k_tile, line, part, lane);
      int stage = -1;
      TW_NO_UNROLL
      for (int i = place.k_tile; i < place.k_end; ++i) {
        if (!tile.plain) Divide(tile, lane);
        float sums[kTileM / 2];
        TW_UNROLL
        for (float& sum : sums) sum = 0.0f;
        Multiply<0>(tile.rows, tile.raw, DescribeX(at.stage, part), lane, sums);
        if (tile.plain) {
          TW_UNROLL
          for (int j = 0; j < kTileM / 2; ++j) acc[j] += sums[j];
        } else {
          AddDivided(tile.rows, at.stage, lane, sums, acc);
        }
        stage = at.stage;
        // The sums take the place of the last.
        if ((kLayout.sums_apart || i + 1 < place.k_end) && lane == 0) MbarrierArrive(Empty(stage));
        at.Advance();
        if (i + 1 < place.k_end) tile = Open(at, i + 1, line, part, lane);
      }
      float* const sums = reinterpret_cast<float*>(
          smem + (kLayout.sums_apart ? kLayout.sums : stage * kLayout.stage_bytes));
      // Nobody reads what is there any more: a stage, or the sums of the output tile before.
      NamedBarrier(1, kThreads);
      ComputeFromHere(lane);
      StageSums(sums, part, row, lane, acc);
      finish.End(place, sums);
      if constexpr (!kLayout.sums_apart) {
        FenceBeforeTma();
        __syncwarp();
        if (lane == 0) MbarrierArrive(Empty(stage));
      }
      until = place.tile * k_tiles;
    }
  }
};

}  // namespace tw
