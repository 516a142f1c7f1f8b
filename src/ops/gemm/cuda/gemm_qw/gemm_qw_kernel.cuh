#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/tma.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/wgmma.cuh"
#include "device/cuda/kernels/wgmma_registers.cuh"
#include "ops/gemm/cuda/gemm_q/output.cuh"
#include "ops/gemm/cuda/gemm_qw/layout.h"
#include "ops/gemm/cuda/gemm_qw/scaled.cuh"
#include "tilewright/cuda/gemm_qw_params.h"

// Some rows of x times a matrix of weights in blocks, by wgmma: 64 rows of W, as bf16 in registers,
// are A; the rows of x are B.
//
// A CTA has kStrips * kParts warpgroups that multiply, and one that fills the ring of kStages k-tiles:
// the copy engine brings W as it lies in memory; the threads bring x, since they turn it around on the
// way. A strip is 64 rows of W; the kParts warpgroups of a strip take quarters of every k-tile.
//
// The CTAs divide the k-tiles of all output tiles evenly, so that they end together: the first and the
// last output tile of a CTA may be shared with its neighbours. Then each leaves its sums in the
// workspace, and the last to arrive adds them up in the order of k.

namespace tw {

using tilewright::cuda::GemmQKTiles;
using tilewright::cuda::GemmQwBegin;
using tilewright::cuda::GemmQwOwner;
using tilewright::cuda::GemmQwParams;
using tilewright::cuda::GemmQwUnits;

template <Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM, int kTileN,
          int kParts, int kStages>
struct GemmQw {
  using F = Codes<kTypeW>;
  static constexpr int kTileK = tilewright::cuda::kGemmQTileK;
  static constexpr int kStrips = kTileN / 64;
  static constexpr int kConsumers = kStrips * kParts;  // warpgroups
  static constexpr int kThreads = 128 * kConsumers;    // that multiply; 128 more fill the ring
  static constexpr int kQuarters = 4 / kParts;         // of a k-tile of a warpgroup
  static_assert(kTileN % 64 == 0 && kTileM % 16 == 0 && kTileM <= 128, "shapes of wgmma");
  static_assert(kParts == 1 || kParts == 2 || kParts == 4, "whole quarters");

  // Shared memory: ring [kStages] of { W [kTileN][kLineBytes], x }, the sums of an output tile
  // [kParts][kTileM][kSumPitch], barriers. x lies in steps of 16 k, each [2][kTileM][8]: pairs 0, 2,
  // 4, 6 of a row and then pairs 1, 3, 5, 7 of it, so that the four codes of a word, values 4 t .. 4 t + 3, are
  // what a lane has of A: columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
  static constexpr GemmQwLayout kLayout =
      GemmQwLayout::Of(F::kBytes, F::kBlock, kTileM, kTileN, kStages).WithParts(kTileM, kParts);
  static constexpr int kStepBytes = kTileM * 32;
  static constexpr int kUnitsOfLine =  // of the map
      kTileK / F::kBlock * F::kBytes / tilewright::cuda::GemmQwUnitBytes(F::kBytes);

  const GemmQwParams& p;
  u8* smem;
  u32 ring;  // its address
  int tiles_m, k_tiles;
  i64 units, begin, end;  // of all, and the run of this CTA

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

  TW_DEVICE GemmQw(const GemmQwParams& params, u8* smem_in)
      : p(params),
        smem(smem_in),
        ring(SmemAddress(smem_in)),
        tiles_m((params.m + kTileM - 1) / kTileM),
        k_tiles(GemmQKTiles(params.k)),
        units(GemmQwUnits(params.m, params.n, params.k, kTileM, kTileN)),
        begin(GemmQwBegin(units, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x))),
        end(GemmQwBegin(units, static_cast<int>(blockIdx.x) + 1, static_cast<int>(gridDim.x))) {}

  // A place in the run of a CTA: an output tile and one of its k-tiles.
  struct Place {
    int tile, k_tile;
    TW_DEVICE void Advance(int k_tiles) {
      if (++k_tile == k_tiles) {
        k_tile = 0;
        ++tile;
      }
    }
  };
  TW_DEVICE Place First() const {
    const int tile = static_cast<int>(begin / k_tiles);
    return {tile, static_cast<int>(begin - i64{tile} * k_tiles)};
  }

  // One thread: the copy engine brings the k-tile of W.
  TW_DEVICE void FetchW(const Place& at, int stage) const {
    MbarrierArriveExpectTx(Full(stage), static_cast<u32>(kLayout.w_bytes));
    TmaLoad2D(Stage(stage), &p.w, Full(stage), at.k_tile * kUnitsOfLine,
              at.tile / tiles_m * kTileN);
  }

  // Of x, a thread brings 16 k of a row at a time: a warp eight rows by 64 k.
  static constexpr int kTasks = kTileM / 8 * (kTileK / 64) / 4;  // of each of four warps
  struct Rows {
    U32x4 v[kTasks][2];
  };
  TW_DEVICE void LoadX(const Place& at, int warp, int lane, Rows& rows) const {
    const int m0 = at.tile % tiles_m * kTileM, k0 = at.k_tile * kTileK;
    TW_UNROLL
    for (int i = 0; i < kTasks; ++i) {
      const int task = warp + 4 * i;
      const int row = m0 + task % (kTileM / 8) * 8 + lane % 8;
      const int k = k0 + (task / (kTileM / 8) * 4 + lane / 8) * 16;
      const u8* from = static_cast<const u8*>(p.x) + (row * p.ldx + k) * 2;
      const bool inside = row < p.m && k < p.k;
      rows.v[i][0] = inside ? LoadCached16(from) : U32x4{};
      rows.v[i][1] = inside ? LoadCached16(from + 16) : U32x4{};
    }
  }
  TW_DEVICE void StoreX(int stage, int warp, int lane, const Rows& rows) const {
    TW_UNROLL
    for (int i = 0; i < kTasks; ++i) {
      const int task = warp + 4 * i;
      const int step = task / (kTileM / 8) * 4 + lane / 8;
      const int row = task % (kTileM / 8) * 8 + lane % 8;
      const u32 to =
          Stage(stage) + static_cast<u32>(kLayout.w_bytes + step * kStepBytes + row * 16);
      const U32x4& a = rows.v[i][0];
      const U32x4& b = rows.v[i][1];
      StoreShared16(to, a.v[0], a.v[2], b.v[0], b.v[2]);
      StoreShared16(to + kStepBytes / 2, a.v[1], a.v[3], b.v[1], b.v[3]);
    }
    FenceBeforeTma();  // wgmma reads it as the copy engine would
    __syncwarp();
    if (lane == 0) MbarrierArrive(Full(stage));
  }

  // The warpgroup that fills the ring.
  TW_DEVICE void Produce(int warp, int lane) const {
    const bool leader = warp == 0 && lane == 0;
    const int count = static_cast<int>(end - begin);
    Place at_w = First();
    int fetched = 0;  // k-tiles of W
    if (leader) {
      TmaPrefetchMap(&p.w);
      if (p.w_constant == 0) WaitForPrerequisites();
      for (; fetched < kStages && fetched < count; ++fetched) {
        FetchW(at_w, fetched);
        at_w.Advance(k_tiles);
      }
    }
    WaitForPrerequisites();
    Place at_x = First();
    Rows rows;
    LoadX(at_x, warp, lane, rows);
    RingPosition at;
    TW_NO_UNROLL
    for (int i = 0; i < count; ++i) {
      // The stage has been read. The first time round nothing was there: parity 1 of a fresh barrier
      // passes.
      MbarrierWait(Empty(at.stage), at.parity ^ 1);
      if (leader && i >= fetched) {
        FetchW(at_w, at.stage);
        at_w.Advance(k_tiles);
      }
      StoreX(at.stage, warp, lane, rows);
      at_x.Advance(k_tiles);
      if (i + 1 < count) LoadX(at_x, warp, lane, rows);
      at.Advance();
    }
  }

  // Sub-block kJ and those behind it of this warpgroup's part of a stage. `lines`: of row g of the warp;
  // `x`: descriptor of the first step of the first quarter; `previous`: the stage in front of this one, -1: none.
  template <int kJ>
  TW_DEVICE void Multiply(const u8* lines, int part, u64 x, int previous, int lane,
                          float (&acc)[kTileM / 2]) const {
    if constexpr (kJ < 2 * kQuarters) {
      const int quarter = kJ / 2 * kParts + part;
      u32 a[2][4];
      TW_UNROLL
      for (int i = 0; i < 2; ++i) {  // rows g and g + 8
        u32 pairs[2][2];
        ScaledQuarter<kTypeW>::At(lines + 8 * i * kLayout.line_bytes, quarter)
            .template Pairs<kJ % 2>(lane % 4, pairs);
        TW_UNROLL
        for (int h = 0; h < 2; ++h) {
          a[h][i] = pairs[h][0];
          a[h][i + 2] = pairs[h][1];
        }
      }
      constexpr int kStep = kJ / 2 * kParts * 4 + kJ % 2 * 2;  // of 16 k, from the first
      WgmmaFence();
      TW_UNROLL
      for (int h = 0; h < 2; ++h)
        WgmmaRegistersKMajor<kTileM>(acc, a[h], x + (kStep + h) * (kStepBytes >> 4));
      WgmmaCommit();
      // One sub-block is multiplied while the next is unpacked; the one before has been read.
      WgmmaWait<1>();
      if (kJ == 0 && previous >= 0 && lane == 0) MbarrierArrive(Empty(previous));
      Multiply<kJ + 1>(lines, part, x, previous, lane, acc);
    }
  }

  // Puts this warp's sums in place, [kParts][kTileM][kSumPitch].
  TW_DEVICE void StageSums(int part, int row, int lane, const float (&acc)[kTileM / 2]) const {
    float* sums = Sums() + part * (kTileM * kLayout.sum_pitch) + row + lane / 4;
    TW_UNROLL
    for (int i = 0; i < kTileM / 2; ++i) {
      const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      sums[column * kLayout.sum_pitch + i / 2 % 2 * 8] = acc[i];
    }
  }
  TW_DEVICE float* Sums() const { return reinterpret_cast<float*>(smem + kLayout.sums); }

  // Leaves the sums of a part of k in the workspace. Returns whether this CTA is the last of those
  // that share the tile, which has `sharing` of them.
  TW_DEVICE bool LeaveSums(int tile, int m0, int slot, int sharing) const {
    constexpr int kFours = kTileN / 4;
    const StagedSums<kTileM, kParts, kLayout.sum_pitch> of_cta{Sums()};
    float* to = p.partials + i64{slot} * (kTileM * kTileN);
    TW_NO_UNROLL
    for (int i = static_cast<int>(threadIdx.x); i < kTileM * kFours; i += kThreads) {
      const int m = i / kFours, n = i % kFours * 4;
      if (m0 + m >= p.m) break;
      float sum[4];
      of_cta(m, n, sum);
      StorePack<Type::kF32, 4>(to, m * kTileN + n, sum);
    }
    u32* arrived = reinterpret_cast<u32*>(smem + kLayout.barriers + 16 * kStages);
    NamedBarrier(1, kThreads);  // all of this CTA's sums are written
    if (threadIdx.x == 0) {
      *arrived = Arrive(p.arrivals + tile);
      if (*arrived + 1 == static_cast<u32>(sharing)) p.arrivals[tile] = 0;  // for the next launch
    }
    NamedBarrier(1, kThreads);  // thread 0 knows
    return *arrived + 1 == static_cast<u32>(sharing);
  }

  // Makes y of the sums of an output tile, or leaves them to the CTA that does; k-tiles `first` and
  // `count` - 1 behind it are in them.
  TW_DEVICE void Finish(int tile, int first, int count, bool packs) const {
    const int m0 = tile % tiles_m * kTileM, n0 = tile / tiles_m * kTileN;
    if (count == k_tiles) {
      OutputTile<kTypeC, kTypeY, kEpilogue, kTileM, kTileN, kThreads>(
          p, m0, n0, packs, StagedSums<kTileM, kParts, kLayout.sum_pitch>{Sums()});
      return;
    }
    const int ctas = static_cast<int>(gridDim.x), cta = static_cast<int>(blockIdx.x);
    const i64 of_tile = i64{tile} * k_tiles;
    const int first_cta = GemmQwOwner(units, of_tile, ctas);
    const int sharing = GemmQwOwner(units, of_tile + k_tiles - 1, ctas) - first_cta + 1;
    // A CTA has two places: for the output tile that its run begins in, and for the one it ends in.
    const int own = of_tile + first == begin ? 0 : 1;
    if (!LeaveSums(tile, m0, 2 * cta + own, sharing)) return;
    OutputTile<kTypeC, kTypeY, kEpilogue, kTileM, kTileN, kThreads>(
        p, m0, n0, packs, [&](int m, int n, float(&sum)[4]) {
          TW_UNROLL
          for (int j = 0; j < 4; ++j) sum[j] = 0.0f;
          for (int i = 0; i < sharing; ++i) {
            const int from = first_cta + i;
            const int slot = 2 * from + (GemmQwBegin(units, from, ctas) >= of_tile ? 0 : 1);
            float more[4];
            LoadPack<Type::kF32, 4>(p.partials, (i64{slot} * kTileM + m) * kTileN + n, more);
            TW_UNROLL
            for (int j = 0; j < 4; ++j) sum[j] += more[j];
          }
        });
  }

  // A warpgroup that multiplies.
  TW_DEVICE void Consume(int warp, int lane) const {
    const int part = warp / 4 % kParts, row = warp / (4 * kParts) * 64 + warp % 4 * 16;
    const int lines = (row + lane / 4) * kLayout.line_bytes;  // in a stage
    const u64 x = WgmmaPlainDescriptor(
        ring + static_cast<u32>(kLayout.w_bytes + part * 4 * kStepBytes), kStepBytes / 2, 128);
    const bool packs = OutputInPacks<kTypeC, kTypeY>(p);
    RingPosition at;
    Place place = First();
    int left = static_cast<int>(end - begin);
    WaitForPrerequisites();  // the addend, and y, which others may still read
    TW_NO_UNROLL
    while (left > 0) {
      const int ahead = k_tiles - place.k_tile;
      const int count = ahead < left ? ahead : left;
      float acc[kTileM / 2];
      TW_UNROLL
      for (int i = 0; i < kTileM / 2; ++i) acc[i] = 0.0f;
      int previous = -1;
      TW_NO_UNROLL
      for (int i = 0; i < count; ++i) {
        MbarrierWait(Full(at.stage), at.parity);  // W and x have landed
        const int offset = at.stage * kLayout.stage_bytes;
        Multiply<0>(smem + (offset + lines), part, x + static_cast<u64>(offset >> 4), previous,
                    lane, acc);
        previous = at.stage;
        at.Advance();
      }
      WgmmaWaitForAll(acc);
      if (lane == 0) MbarrierArrive(Empty(previous));
      NamedBarrier(1, kThreads);  // the sums of the output tile before have been read
      StageSums(part, row, lane, acc);
      NamedBarrier(1, kThreads);  // every warp's are there
      Finish(place.tile, place.k_tile, count, packs);
      left -= count;
      place = {place.tile + 1, 0};
    }
  }

  // The whole kernel. `smem`: shared, aligned to 128 bytes.
  TW_DEVICE static void Run(const GemmQwParams& params, u8* smem) {
    LaunchDependents();
    const GemmQw cta(params, smem);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // The same in all lanes, and the compiler is to know.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        MbarrierInit(cta.Full(i), 1 + 4);  // with the bytes of W, and of x each warp of the fifth
        MbarrierInit(cta.Empty(i), 4 * kConsumers);  // a lane of each warp
      }
      FenceBarrierInit();
    }
    __syncthreads();  // the barriers are ready
    if (warp >= 4 * kConsumers) {
      cta.Produce(warp - 4 * kConsumers, lane);
    } else {
      cta.Consume(warp, lane);
    }
  }
};

}  // namespace tw
