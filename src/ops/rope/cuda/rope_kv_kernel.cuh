#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/rope/cuda/rope_angle.cuh"
#include "tilewright/cuda/rope_kv_params.h"

// Rotary embedding of q and k and the scatter of k and v into the cache in one pass over memory. A
// CTA has one row and kTileN of its heads (q's, then k's, then v's): it computes the row's sines
// and cosines once, into shared memory, and its threads take eight elements at a time.

namespace tw {

using tilewright::cuda::RopeKvParams;

template <int kHeadDim>
struct alignas(16) RopeAngles {
  float cosines[kHeadDim / 2];
  float sines[kHeadDim / 2];
};

/// Types: q, k and v; caches; q_out.
template <Type kTypeA, Type kTypeC, Type kTypeD, int kHeadDim, bool kHalfSplit, int kTileN,
          int kWarps>
struct RopeKv {
  static constexpr int kThreads = kWarps * 32;

  const RopeKvParams& p;
  RopeAngles<kHeadDim>& angles;  // shared
  int row, position, slot;

  /// Reads, turns if asked to, and writes the elements of item `item` of a head.
  template <Type kTo, bool kTurns, int kPairs>
  TW_DEVICE void Move(const void* source, i64 from, void* target, i64 to, int item) const {
    const RopePlace place = RopePlaceOf<kHalfSplit, kPairs>(item, p.dims);
    float first[kPairs], second[kPairs];
    LoadPack<kTypeA, kPairs>(source, from + place.first, first);
    LoadPack<kTypeA, kPairs>(source, from + place.second, second);
    if (kTurns && place.turns) {
      float x[2 * kPairs];
      TW_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        x[i] = first[i];
        x[i + kPairs] = second[i];
      }
      RopeTurn<kHalfSplit, kPairs>(angles.cosines + kPairs * item, angles.sines + kPairs * item, x);
      TW_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        first[i] = x[i];
        second[i] = x[i + kPairs];
      }
    }
    StorePack<kTo, kPairs>(target, to + place.first, first);
    StorePack<kTo, kPairs>(target, to + place.second, second);
  }

  template <int kPairs>
  TW_DEVICE void MoveHeads() const {
    constexpr int kItems = kHeadDim / (2 * kPairs);
    const int first_head = static_cast<int>(blockIdx.y) * kTileN;
    for (int i = static_cast<int>(threadIdx.x); i < kTileN * kItems; i += kThreads) {
      const int head = first_head + i / kItems, item = i % kItems;
      if (head >= p.heads + 2 * p.kv_heads) return;
      if (head < p.heads) {
        Move<kTypeD, true, kPairs>(p.q, row * p.q_row + head * p.q_head, p.q_out,
                                   row * p.q_out_row + head * p.q_out_head, item);
      } else if (head < p.heads + p.kv_heads) {
        const int h = head - p.heads;
        Move<kTypeC, true, kPairs>(
            p.k, row * p.k_row + h * p.k_head, p.k_cache,
            h * p.k_cache_head + position * p.k_cache_position + slot * p.k_cache_slot, item);
      } else {
        const int h = head - p.heads - p.kv_heads;
        Move<kTypeC, false, kPairs>(
            p.v, row * p.v_row + h * p.v_head, p.v_cache,
            h * p.v_cache_head + position * p.v_cache_position + slot * p.v_cache_slot, item);
      }
    }
  }

  /// Whether packs of four elements are aligned everywhere.
  TW_DEVICE bool Aligned() const {
    bool aligned = kHeadDim % 8 == 0 && p.dims % 8 == 0;
    if (p.heads > 0) {
      aligned = aligned && PacksAligned<kTypeA, 4>(p.q, p.q_head | p.q_row) &&
                PacksAligned<kTypeD, 4>(p.q_out, p.q_out_head | p.q_out_row);
    }
    if (p.kv_heads > 0) {
      aligned =
          aligned && PacksAligned<kTypeA, 4>(p.k, p.k_head | p.k_row) &&
          PacksAligned<kTypeA, 4>(p.v, p.v_head | p.v_row) &&
          PacksAligned<kTypeC, 4>(p.k_cache,
                                  p.k_cache_head | p.k_cache_position | p.k_cache_slot) &&
          PacksAligned<kTypeC, 4>(p.v_cache, p.v_cache_head | p.v_cache_position | p.v_cache_slot);
    }
    return aligned;
  }

  TW_DEVICE void ComputeAngles() const {
    for (int i = static_cast<int>(threadIdx.x); i < p.dims / 2; i += kThreads) {
      const SinCos value = SinCosOfTurns(position, p.turns[i]);
      angles.cosines[i] = value.cos;
      angles.sines[i] = value.sin;
    }
  }

  TW_DEVICE bool PlaceExists() const {
    if (position < 0) return false;
    return p.kv_heads == 0 || (position < p.context && slot >= 0 && slot < p.slot_count);
  }

  TW_DEVICE void Run() const {
    if (!PlaceExists()) {
      if (p.fault != nullptr && blockIdx.y == 0 && threadIdx.x == 0) atomicMax(p.fault, row + 1);
      return;
    }
    ComputeAngles();
    __syncthreads();  // all angles are there before any pair is turned
    if (Aligned()) {
      if constexpr (kHeadDim % 8 == 0) MoveHeads<4>();
    } else {
      MoveHeads<1>();
    }
  }
};

}  // namespace tw
