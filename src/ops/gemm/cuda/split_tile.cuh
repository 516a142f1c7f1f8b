#pragma once

#include "device/cuda/kernels/cluster.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/wgmma.cuh"
#include "ops/gemm/cuda/epilogue.cuh"
#include "tilewright/cuda/gemm_params.h"

// An output tile that the CTAs of a cluster have computed a part of k of each. Every CTA owns as many
// columns of it: the others send it their sums of those through distributed shared memory, and it adds
// them up in the order of k and stores them.

namespace tw {

/// The CTA of the cluster with part `part` of k of this tile, where the cluster has Spec::kClusterN tiles
/// beside each other, is number part * kClusterN + beside. kSplits CTAs of kConsumers warpgroups each, whose accumulators are the sums of kTileM x kTileN as
/// Wgmma leaves them, kStrips strips of 64 rows a warpgroup.
template <class Spec, int kSplits, int kConsumers>
struct SplitTile {
  static constexpr int kTileM = Spec::kTileM;
  static constexpr int kTileN = Spec::kTileN;
  static constexpr int kStrips = kTileM / kConsumers / 64;
  static constexpr int kCols = kTileN / kSplits;  // that a CTA owns
  static constexpr int kEights = kCols / 8;       // of columns, 4 accumulators a thread each
  static constexpr int kTogether = kEights < 4 ? kEights : 4;
  static_assert(kEights * 8 * kSplits == kTileN && kEights % kTogether == 0,
                "whole eights of columns");

  // Shared memory, in place of the ring: sums that were sent, [kSplits][kTileM / 16][kCols / 8][32 lanes]
  // of 16 bytes, and behind them D, [kTileM / 64] of [64][kCols] (TileOffset).
  static constexpr int kSumBytes = kTileM * kCols * 4;  // of one CTA
  static constexpr int kStripBytes = 16 * kCols * 4;
  static constexpr int kChunks = kCols * FloatBytes<Spec::kTypeD>() / 16;
  static constexpr int kStagedBytes = 64 * kChunks * 16;
  static constexpr int kBytes = kSplits * kSumBytes + kTileM / 64 * kStagedBytes;

  u32 smem;      // that of the ring
  u32 free;      // barrier: no CTA of the cluster uses its ring any more
  u32 received;  // barrier: the sums of all others are there
  int rank;      // the number of this CTA's part of k
  int beside;    // that of this tile, among those of the cluster beside each other

  TW_DEVICE u32 CtaOf(int part) const { return static_cast<u32>(part * Spec::kClusterN + beside); }

  /// By one thread, before the cluster meets: the barriers, for a tile whose first row is `row0`.
  TW_DEVICE void Open(const GemmOutput& out, int row0) const {
    MbarrierInit(free, kSplits * kConsumers * 4);
    MbarrierInit(received, 1);
    const int left = out.m - row0;
    const int strips = ((left < kTileM ? left : kTileM) + 15) / 16;
    MbarrierArriveExpectTx(received, static_cast<u32>((kSplits - 1) * strips * kStripBytes));
  }

  /// Sends columns 32 kBlock to 32 kBlock + 31 of strip kStrip and those to the right of them to their
  /// owners.
  template <int kStrip, int kBlock>
  TW_DEVICE void Send(u32 slot, int lane) const {
    if constexpr (kBlock < kTileN / 32) {
      float acc[16];
      WgmmaRead<kStrip, 16 * kBlock, 16>(acc);
      TW_UNROLL
      for (int first = 0; first < 4; first += kTogether) {
        const int owner = (4 * kBlock + first) / kEights;
        const int eight = (4 * kBlock + first) % kEights;
        const u32 at = slot + kStrip * 4 * kStripBytes + eight * 512 + lane * 16;
        const u32 remote = ClusterAddress(at, CtaOf(owner));
        const u32 barrier = ClusterAddress(received, CtaOf(owner));
        TW_UNROLL
        for (int i = 0; i < kTogether; ++i) {
          const float* four = &acc[4 * (first + i)];
          if (owner == rank) {
            StoreShared16(at + i * 512, BitsOf(four[0]), BitsOf(four[1]), BitsOf(four[2]),
                          BitsOf(four[3]));
          } else {
            SendToCluster16(remote + i * 512, barrier, BitsOf(four[0]), BitsOf(four[1]),
                            BitsOf(four[2]), BitsOf(four[3]));
          }
        }
      }
      Send<kStrip, kBlock + 1>(slot, lane);
    }
  }

  /// acc = the sums of this thread in kTogether eights of columns of its strip, from `eight` on. `slot`:
  /// of the strip, of the first CTA.
  TW_DEVICE static void Add(float (&acc)[4 * kTogether], u32 slot, int eight, int lane) {
    TW_UNROLL
    for (int i = 0; i < 4 * kTogether; ++i) acc[i] = 0.0f;
    TW_UNROLL
    for (int s = 0; s < kSplits; ++s) {
      TW_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        u32 word[4];
        LoadShared16(word, slot + s * kSumBytes + (eight + i) * 512 + lane * 16);
        TW_UNROLL
        for (int j = 0; j < 4; ++j) acc[4 * i + j] += FloatOf(word[j]);
      }
    }
  }

  /// Warpgroup `consumer` of this CTA has the sums of its part of k, and has read the ring for the last
  /// time: stores its rows of the columns that this CTA owns. (row0, col0) is the tile's.
  TW_DEVICE void Store(const GemmOutput& out, int row0, int col0, int consumer, int warp,
                       int lane) const {
    const int strip16 = consumer * kStrips * 4 + warp % 4;  // of 16 rows, then every fourth
    const int row = row0 + strip16 * 16;
    const u32 slot = smem + strip16 * kStripBytes;
    ClusterWait();  // the barriers of all CTAs are open
    if (lane < kSplits) MbarrierArriveCluster(free, CtaOf(lane));
    MbarrierWaitCluster(free, 0);
    SendStrips<0>(out, row, slot, lane);
    MbarrierWaitCluster(received, 0);
    const int own_col = col0 + rank * kCols;
    TW_NO_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      const u32 staged = smem + kSplits * kSumBytes + (consumer * kStrips + s) * kStagedBytes;
      if (row + 64 * s < out.m) {
        TW_NO_UNROLL
        for (int eight = 0; eight < kEights; eight += kTogether) {
          float acc[4 * kTogether];
          Add(acc, slot + s * 4 * kStripBytes, eight, lane);
          StageStrip<Spec::kTypeC, Spec::kTypeD, kChunks>(
              out, acc, row + 64 * s, own_col + 8 * eight, staged, warp % 4 * 16,
              eight * kChunks / kEights, lane);
        }
      }
      NamedBarrier(1 + consumer, 128);  // all four warps have staged their rows
      StoreTile<Spec::kTypeD, 64, kChunks, 128>(out, row0 + (consumer * kStrips + s) * 64, own_col,
                                                staged, warp % 4 * 32 + lane);
    }
  }

 private:
  /// Sends strip kStrip and those below it, where rows are of D.
  template <int kStrip>
  TW_DEVICE void SendStrips(const GemmOutput& out, int row, u32 slot, int lane) const {
    if constexpr (kStrip < kStrips) {
      if (row + 64 * kStrip < out.m) Send<kStrip, 0>(slot + rank * kSumBytes, lane);
      SendStrips<kStrip + 1>(out, row, slot, lane);
    }
  }
};

}  // namespace tw
