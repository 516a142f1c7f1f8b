#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemm_q/output.cuh"
#include "ops/gemm/cuda/gemm_qr/layout.h"
#include "tilewright/cuda/gemm_qr_params.h"

// What becomes of the sums of the warps of gemm_qr: four more warps add them up, leave them in the workspace where other CTAs
// have other parts of k, and the last to arrive adds up those of all in the order of k and stores y.

namespace tw {

using tilewright::cuda::GemmQrBegin;
using tilewright::cuda::GemmQrParams;

/// Which output tiles and which part of k a CTA has: slice after slice of the same tiles beside each other.
template <int kTileM, int kTileN>
struct GemmQrWork {
  int m0, tile_m, tiles_m, tiles_n;
  int slice, group, groups;
  int k_tiles;              // of all slices
  int first_k_tile, warps;  // one for each k-tile

  TW_DEVICE explicit GemmQrWork(const GemmQrParams& p)
      : m0(static_cast<int>(blockIdx.y) * kTileM),
        tile_m(static_cast<int>(blockIdx.y)),
        tiles_m(static_cast<int>(gridDim.y)),
        tiles_n((p.n + kTileN - 1) / kTileN),
        slice(static_cast<int>(blockIdx.x) % p.slices),
        group(static_cast<int>(blockIdx.x) / p.slices),
        groups(static_cast<int>(gridDim.x) / p.slices),
        k_tiles(tilewright::cuda::GemmQKTiles(p.k)) {
    first_k_tile = GemmQrBegin(k_tiles, slice, p.slices);
    warps = GemmQrBegin(k_tiles, slice + 1, p.slices) - first_k_tile;
  }
  /// The i-th of this CTA, which may be outside.
  TW_DEVICE int TileOf(int i) const { return group + i * groups; }
  TW_DEVICE int OwnTiles() const {
    return group < tiles_n ? (tiles_n - 1 - group) / groups + 1 : 0;
  }
};

/// The barriers of the sums of output tiles, behind each other in shared memory. Of the i-th tile of a CTA.
struct GemmQrBarriers {
  static constexpr int kBuffers = GemmQrLayout::kSumBuffers;
  static constexpr int kStoring = tilewright::cuda::kGemmQrStoringWarps;
  u32 first;
  TW_DEVICE u32 At(int number) const { return first + 8 * static_cast<u32>(number); }
  /// Every warp that multiplies has left its sums in a buffer. There is a barrier for each warp that stores, which sees
  /// every phase of its own.
  TW_DEVICE u32 Summed(int i) const { return At(i % kStoring); }
  TW_DEVICE static u32 SummedParity(int i) { return static_cast<u32>(i / kStoring) % 2; }
  /// They have been read: for the tile that has the buffer next.
  TW_DEVICE u32 Taken(int i) const { return At(kStoring + i % kBuffers); }
  TW_DEVICE static u32 TakenParity(int i) { return static_cast<u32>(i / kBuffers) % 2; }
  TW_DEVICE void Init(u32 warps) const {
    for (int i = 0; i < kStoring; ++i) MbarrierInit(Summed(i), warps);
    for (int i = 0; i < kBuffers; ++i) MbarrierInit(Taken(i), 1);
  }
};

/// One of kGemmQrStoringWarps warps, each with output tiles of its own, so that the ways to the L2 and back of several
/// tiles overlap.
template <Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM, int kTileN>
struct GemmQrFinish {
  static constexpr bool kGated = kEpilogue == Epilogue::kSwiGlu;
  static constexpr int kBlock = tilewright::cuda::kGemvGatedBlock;
  // A lane has columns 16 f + 4 (lane % 4) to the next four of rows 8 r + lane / 4.
  static constexpr int kRows = kTileM / 8, kFours = kTileN / 16;
  static_assert(kBlock == 16 && (!kGated || kFours % 2 == 0), "whole pairs of gate and up");
  static constexpr int kPitch = GemmQrLayout::SumPitch(kTileN);
  static constexpr int kWarps = tilewright::cuda::kGemmQrWarps;
  using Work = GemmQrWork<kTileM, kTileN>;
  using Sums = float[kFours][4];  // of a row

  const GemmQrParams& p;
  const Work& work;
  int lane;
  bool packs;

  // `sums`: [kSumBuffers][kGemmQrWarps][kTileM][kPitch].
  TW_DEVICE static void Run(const GemmQrParams& params, const Work& work,
                            const GemmQrBarriers& barriers, const float* sums, int warp, int lane) {
    const GemmQrFinish finish{params, work, lane, OutputInPacks<kTypeC, kTypeY>(params)};
    const int count = work.OwnTiles();
    TW_NO_UNROLL
    for (int i = warp; i < count; i += tilewright::cuda::kGemmQrStoringWarps) {
      MbarrierWait(barriers.Summed(i), GemmQrBarriers::SummedParity(i));
      Sums sum[kRows] = {};
      finish.AddWarps(sums + i % GemmQrBarriers::kBuffers * kWarps * kTileM * kPitch, sum);
      __syncwarp();
      if (lane == 0) MbarrierArrive(barriers.Taken(i));
      const int tile = work.TileOf(i);
      if (params.slices == 1) {
        finish.Store(tile, sum);
      } else {
        finish.AddSlices(tile, sum);
      }
    }
  }

  TW_DEVICE void AddWarps(const float* of_first, Sums (&sum)[kRows]) const {
    const float* const own = of_first + lane / 4 * kPitch + lane % 4 * 4;
    TW_NO_UNROLL
    for (int w = 0; w < work.warps; ++w) {
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) {
        TW_UNROLL
        for (int f = 0; f < kFours; ++f) {
          float more[4];
          LoadPack<Type::kF32, 4>(own, (w * kTileM + 8 * r) * kPitch + 16 * f, more);
          TW_UNROLL
          for (int j = 0; j < 4; ++j) sum[r][f][j] += more[j];
        }
      }
    }
  }

  // Leaves the sums of this slice of k in the workspace; the warp that comes last of those of a tile adds up those of all
  // slices in their order and stores y.
  TW_DEVICE void AddSlices(int tile, Sums (&sum)[kRows]) const {
    constexpr int kSlice = kTileM * kTileN;
    const i64 number = i64{tile} * work.tiles_m + work.tile_m;
    float* const of_tile = p.partials + number * p.slices * kSlice;
    const auto place = [&](int slice, int r, int f) {
      return slice * kSlice + ((r * kFours + f) * 32 + lane) * 4;
    };
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (!Inside(r)) break;
      TW_UNROLL
      for (int f = 0; f < kFours; ++f)
        StorePack<Type::kF32, 4>(of_tile, place(work.slice, r, f), sum[r][f]);
    }
    __syncwarp();  // all of this slice's sums are written
    u32 before = 0;
    if (lane == 0) before = Arrive(p.arrivals + number);
    if (FromLane(before, 0) != static_cast<u32>(p.slices - 1)) return;
    if (lane == 0) p.arrivals[number] = 0;  // for the next launch
    __syncwarp();
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TW_UNROLL
      for (int f = 0; f < kFours; ++f) {
        TW_UNROLL
        for (int j = 0; j < 4; ++j) sum[r][f][j] = 0.0f;
      }
    }
    TW_NO_UNROLL
    for (int s = 0; s < p.slices; ++s) {
      Sums more[kRows] = {};
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) {
        TW_UNROLL
        for (int f = 0; f < kFours; ++f)
          if (Inside(r)) LoadPack<Type::kF32, 4>(of_tile, place(s, r, f), more[r][f]);
      }
      TW_UNROLL
      for (int r = 0; r < kRows; ++r) {
        TW_UNROLL
        for (int f = 0; f < kFours; ++f) {
          TW_UNROLL
          for (int j = 0; j < 4; ++j) sum[r][f][j] += more[r][f][j];
        }
      }
    }
    Store(tile, sum);
  }

  TW_DEVICE bool Inside(int r) const { return work.m0 + 8 * r + lane / 4 < p.m; }

  TW_DEVICE void Store(int tile, const Sums (&sum)[kRows]) const {
    const int column = lane % 4 * 4;
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int m = work.m0 + 8 * r + lane / 4;
      if (m >= p.m) break;
      TW_UNROLL
      for (int f = 0; f < kFours; f += kGated ? 2 : 1) {
        float value[4];
        TW_UNROLL
        for (int j = 0; j < 4; ++j) value[j] = sum[r][f][j];
        if constexpr (kGated) {
          TW_UNROLL
          for (int j = 0; j < 4; ++j)
            value[j] = SiluOf(p.alpha * value[j]) * (p.alpha * sum[r][f + 1][j]);
          const int n = tile * (kTileN / 2) + f / 2 * kBlock + column;
          StoreFour<kTypeY>(p, value, m, n, p.n / 2 - n, packs);
        } else {
          const int n = tile * kTileN + 16 * f + column;
          AddC<kTypeC>(p, value, m, n, p.n - n, packs);
          StoreFour<kTypeY>(p, value, m, n, p.n - n, packs);
        }
      }
    }
  }
};

}  // namespace tw
