#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/gemm/cuda/gemm_q/output.cuh"

// What becomes of the sums of a product of qw_product.cuh. A CTA leaves those of an output tile in the workspace if
// the end of its k is not its own; the CTA that has that adds them up in the order of k, at the end of its
// run, when they are long there.

namespace tw {

/// `Params`: also what GemmQwParams has of the names partials and arrivals. `Output` makes y of an output tile, by all
/// threads that multiply: Load(p, m0, n0) loads what it needs beside the sums; Store(p, m0, n0, sums_at, sums) takes
/// those as OutputTile does; kLoads loads of a thread are to be under way at once. `sums`: in shared memory,
/// [kTileM][SumsAt::kLine], which nobody else reads any more.
template <class Product, class Output>
struct QwFinish {
  static constexpr int kTileM = Product::kRowsOfTile, kTileN = Product::kColumnsOfTile;
  static constexpr int kThreads = Product::kThreads;
  using Place = typename Product::Place;
  using OwnSums = typename Product::OwnSums;
  using Params = typename Product::ItsParams;

  const Product& product;
  const Params& p;
  int others = 0;  // CTAs in front of this one that have k-tiles of the output tile, if it is ours
  bool arrived = false;  // whether all of them have left their sums

  TW_DEVICE explicit QwFinish(const Product& its) : product(its), p(its.p) {}

  TW_DEVICE void Begin(const Place& at) {
    const bool ours = at.k_end == product.k_tiles && at.k_tile > 0;
    others = ours ? product.Cta() - product.OwnerOf(at.tile * product.k_tiles) : 0;
    // Most have arrived by then: no need to ask when all is done.
    arrived = others == 0 ||
              (threadIdx.x == 0 && ReadArrivals(p.arrivals + at.tile) == static_cast<u32>(others));
  }

  // Makes y, or leaves the sums to the CTA that has the end of k. Those in front of a CTA have been started
  // before it, so the wait ends.
  TW_DEVICE void End(const Place& at, float* sums) {
    const int m0 = at.tile % product.tiles_m * kTileM, n0 = at.tile / product.tiles_m * kTileN;
    const OwnSums own{sums};
    const bool ours = at.k_end == product.k_tiles;
    Output output;
    if (ours) output.Load(p, m0, n0);
    if (threadIdx.x == 0 && !arrived) {
      while (ReadArrivals(p.arrivals + at.tile) != static_cast<u32>(others)) PauseInWait();
    }
    NamedBarrier(1, kThreads);  // every warp's sums are there, and those of others
    if (!ours) {
      LeaveSums(at.tile, m0, own);
    } else if (others == 0) {
      output.Store(p, m0, n0, own, sums);
    } else {
      if (threadIdx.x == 0) p.arrivals[at.tile] = 0;  // for the next launch
      AddOthers(m0, sums);
      output.Store(p, m0, n0, StagedSums<kTileM, 1, Product::kLayout.sum_pitch>{sums}, sums);
    }
  }

  // Leaves the sums of a part of k in the workspace, for the CTA that has the last part.
  TW_DEVICE void LeaveSums(int tile, int m0, const OwnSums& own) const {
    constexpr int kFours = kTileN / 4;
    float* to = p.partials + i64{product.Cta()} * (kTileM * kTileN);
    TW_NO_UNROLL
    for (int i = static_cast<int>(threadIdx.x); i < kTileM * kFours; i += kThreads) {
      const int m = i / kFours, n = i % kFours * 4;
      if (m0 + m >= p.m) break;
      float sum[4];
      own(m, n, sum);
      StorePack<Type::kF32, 4>(to, m * kTileN + n, sum);
    }
    NamedBarrier(1, kThreads);  // all of this CTA's sums are written
    if (threadIdx.x == 0) Arrive(p.arrivals + tile);
  }

  // Adds what `others` CTAs in front of this one have left of a shared tile, and the sums of all parts, in the
  // order of k, and puts the result in place of the first part. A thread has many loads under way: each
  // takes as long as all of them.
  TW_DEVICE void AddOthers(int m0, float* sums) const {
    constexpr int kFours = kTileN / 4;
    constexpr int kTurns = (kTileM * kFours + kThreads - 1) / kThreads;
    constexpr int kBatch = kTurns < 4 ? kTurns : 4, kAtOnce = Output::kLoads / kBatch;
    const int rows = p.m - m0 < kTileM ? p.m - m0 : kTileM, count = rows * kFours;
    const OwnSums own{sums};
    const int first_cta = product.Cta() - others;
    TW_NO_UNROLL
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kBatch * kThreads) {
      float sum[kBatch][4];
      TW_UNROLL
      for (auto& four : sum) {
        TW_UNROLL
        for (float& value : four) value = 0.0f;
      }
      TW_NO_UNROLL
      for (int first = 0; first < others; first += kAtOnce) {
        float more[kAtOnce][kBatch][4];
        TW_UNROLL
        for (int c = 0; c < kAtOnce; ++c) {
          TW_UNROLL
          for (int b = 0; b < kBatch; ++b) {
            TW_UNROLL
            for (float& value : more[c][b]) value = 0.0f;
            const int at = i + b * kThreads;
            const i64 cta = first_cta + first + c;
            if (first + c < others && at < count)
              LoadPack<Type::kF32, 4>(p.partials, cta * (kTileM * kTileN) + at * 4, more[c][b]);
          }
        }
        TW_UNROLL
        for (int c = 0; c < kAtOnce; ++c) {
          TW_UNROLL
          for (int b = 0; b < kBatch; ++b) {
            TW_UNROLL
            for (int j = 0; j < 4; ++j) sum[b][j] += more[c][b][j];
          }
        }
      }
      TW_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int at = i + b * kThreads, m = at / kFours, n = at % kFours * 4;
        if (at >= count) break;
        float last[4];
        own(m, n, last);
        TW_UNROLL
        for (int j = 0; j < 4; ++j) sum[b][j] += last[j];
        StorePack<Type::kF32, 4>(sums, m * Product::kLayout.sum_pitch + n, sum[b]);
      }
    }
    NamedBarrier(1, kThreads);  // for the threads that store it
  }
};

}  // namespace tw
