#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/wgmma.cuh"
#include "tilewright/cuda/gemm_params.h"

// An output tile whose k-tiles are divided among the shares of several CTAs (GemmHopperShares). The last
// of them to arrive has its own sums in registers and adds those of the others, which wait in global
// memory, in the order of k: which one that is changes no bit.

namespace tw {

using tilewright::cuda::GemmHopperParams;
using tilewright::cuda::GemmHopperShareBegin;
using tilewright::cuda::GemmHopperShares;

/// The parts of one tile, those of shares `first` to `first + count - 1`, and which of them this CTA has.
struct TileParts {
  int first = 0;
  int count = 1;  // 1: the tile is not divided
  int own = 0;

  TileParts() = default;
  /// Those of divided tile `tile`, a part of which is in share `share`.
  TW_DEVICE TileParts(const GemmHopperShares& shares, int k_tiles, int tile, int share)
      : first(share) {
    while (GemmHopperShareBegin(shares, k_tiles, first) > tile * k_tiles) --first;
    int last = share;
    while (GemmHopperShareBegin(shares, k_tiles, last + 1) < (tile + 1) * k_tiles) ++last;
    count = last - first + 1;
    own = share - first;
  }
};

/// Of warpgroup `consumer` of CTA `peer` of its cluster: its sums of a divided tile, kStrips strips of 64
/// rows. A slot in the workspace holds them as [consumer][strip][16 accumulators][4][128 threads] of 16
/// bytes.
template <class Spec, int kConsumers, int kPeers>
struct PartialSums {
  static constexpr int kStrips = Spec::kTileM / kConsumers / 64;
  static constexpr int kBlocks = Spec::kTileN / 32;  // of 16 accumulators, of a strip
  static constexpr int kBlockFloats = 16 * 128;
  static constexpr int kSlotFloats = Spec::kTileM * Spec::kTileN;
  static_assert(Spec::kTileN % 32 != 0 ||
                    kConsumers * kStrips * kBlocks * kBlockFloats == kSlotFloats,
                "whole strips");

  const GemmHopperParams& params;
  TileParts parts;
  int tile;  // of the divided ones
  int peer;
  int consumer;
  int thread;  // of the warpgroup

  /// Whether this warpgroup is the last to arrive; all four warps call it. `flag`: shared, 16 bytes
  /// of this warpgroup. Who is not must then call Leave.
  TW_DEVICE bool IsLast(u32 flag) const {
    if (thread == 0) {
      u32* const counter = Counter();
      const u32 others = static_cast<u32>(parts.count - 1);
      const bool last = (ArriveWith(counter, 1) & 0xffff) == others;
      if (last) {
        // They are here and do not wait for anything, so that this is short; most have long left.
        while (ReadArrivals(counter) >> 16 != others) {
        }
        *counter = 0;  // for the next launch
      }
      StoreShared4(flag, last ? 1 : 0);
    }
    NamedBarrier(1 + consumer, 128);
    u32 said[4];
    LoadShared16(said, flag);
    return said[0] != 0;
  }

  /// Leaves the sums for the last to arrive.
  TW_DEVICE void Leave(int row0) const {
    LeaveBlocks<0>(row0);
    NamedBarrier(1 + consumer, 128);  // all four warps have
    if (thread == 0) ArriveWith(Counter(), 1 << 16);
  }

  /// sum = the sums of all parts, of kCount blocks of accumulators from kBlock on of strip kStrip.
  template <int kStrip, int kBlock, int kCount>
  TW_DEVICE void Add(float (&sum)[16 * kCount], int row0) const {
    // Rows that D does not have were not left.
    if (parts.count == 1 || !HasRows<kStrip>(row0)) {
      WgmmaRead<kStrip, 16 * kBlock, 16 * kCount>(sum);
      return;
    }
    constexpr int kFirst = kStrip * kBlocks + kBlock;
    if (parts.own == 0) {
      WgmmaRead<kStrip, 16 * kBlock, 16 * kCount>(sum);
    } else {
      Load<kFirst, kCount>(sum, 0);
      TW_NO_UNROLL
      for (int part = 1; part < parts.own; ++part) AddOf<kFirst, kCount>(sum, part);
      float own[16 * kCount];
      WgmmaRead<kStrip, 16 * kBlock, 16 * kCount>(own);
      TW_UNROLL
      for (int i = 0; i < 16 * kCount; ++i) sum[i] += own[i];
    }
    TW_NO_UNROLL
    for (int part = parts.own + 1; part < parts.count; ++part) AddOf<kFirst, kCount>(sum, part);
  }

 private:
  TW_DEVICE u32* Counter() const { return params.arrivals + (tile * kPeers + peer) * 2 + consumer; }

  /// Block `kBlock` of part `part`.
  template <int kBlock>
  TW_DEVICE float* Place(int part) const {
    const i64 slot = i64{parts.first + part + tile} * kPeers + peer;
    return params.partials + slot * kSlotFloats +
           (consumer * kStrips * kBlocks + kBlock) * kBlockFloats + 4 * thread;
  }

  /// Whether this warp's 16 rows of strip kStrip are of D; row0 is the warpgroup's first row.
  template <int kStrip>
  TW_DEVICE bool HasRows(int row0) const {
    return row0 + 64 * kStrip + thread / 32 * 16 < params.out.m;
  }

  template <int kBlock>
  TW_DEVICE void LeaveBlocks(int row0) const {
    if constexpr (kBlock < kStrips * kBlocks) {
      constexpr int kStrip = kBlock / kBlocks;
      if (HasRows<kStrip>(row0)) {
        float sum[16];
        WgmmaRead<kStrip, kBlock % kBlocks * 16, 16>(sum);
        float* const place = Place<kBlock>(parts.own);
        TW_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float four[4] = {sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]};
          StorePack<Type::kF32, 4>(place, 512 * i, four);
        }
      }
      LeaveBlocks<kBlock + 1>(row0);
    }
  }

  template <int kBlock, int kCount>
  TW_DEVICE void Load(float (&sum)[16 * kCount], int part) const {
    TW_UNROLL
    for (int i = 0; i < 4 * kCount; ++i) {
      float four[4];
      LoadPack<Type::kF32, 4>(Place<kBlock>(part), 512 * i, four);
      TW_UNROLL
      for (int j = 0; j < 4; ++j) sum[4 * i + j] = four[j];
    }
  }

  template <int kBlock, int kCount>
  TW_DEVICE void AddOf(float (&sum)[16 * kCount], int part) const {
    float more[16 * kCount];
    Load<kBlock, kCount>(more, part);
    TW_UNROLL
    for (int i = 0; i < 16 * kCount; ++i) sum[i] += more[i];
  }
};

}  // namespace tw
