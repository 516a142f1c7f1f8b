#pragma once

#include "device/cuda/kernels/cache_place.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/rope/cuda/rope_angle.cuh"
#include "tilewright/cuda/rope_params.h"

// Rotary embedding of the heads of a row, in place, to another tensor or into a KV cache. A CTA has
// one row and some of its heads: it computes the row's sines and cosines once, into shared memory.

namespace tw {

using tilewright::cuda::RopeHeadsParams;

/// Types: in, and out or the cache.
template <Type kTypeA, Type kTypeD, int kWarps>
struct RopeHeads {
  static constexpr int kThreads = kWarps * 32;

  const RopeHeadsParams& p;
  RopeTables& tables;  // shared
  int row;

  /// Elements of item `item` of the CTA's: each is one thread's alone, so that a head may be turned
  /// in place.
  template <bool kHalfSplit, int kPairs>
  TW_DEVICE void Load(int item, float (&first)[kPairs], float (&second)[kPairs]) const {
    const int items = p.head_dim / (2 * kPairs), head = FirstHead() + item / items;
    const RopePlace place = RopePlaceOf<kHalfSplit, kPairs>(item % items, p.dims);
    const i64 from = row * p.in_row + head * p.in_head;
    LoadPack<kTypeA, kPairs>(p.in, from + place.first, first);
    LoadPack<kTypeA, kPairs>(p.in, from + place.second, second);
  }

  /// Turns them and writes them; `to`: where head 0 of the row goes.
  template <bool kHalfSplit, int kPairs>
  TW_DEVICE void Turn(int item, float (&first)[kPairs], float (&second)[kPairs], i64 to) const {
    const int items = p.head_dim / (2 * kPairs), head = FirstHead() + item / items;
    const RopePlace place = RopePlaceOf<kHalfSplit, kPairs>(item % items, p.dims);
    if (place.turns) {
      const int pair = kPairs * (item % items);
      float x[2 * kPairs];
      TW_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        x[i] = first[i];
        x[i + kPairs] = second[i];
      }
      RopeTurn<kHalfSplit, kPairs>(tables.cosines + pair, tables.sines + pair, x);
      TW_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        first[i] = x[i];
        second[i] = x[i + kPairs];
      }
    }
    const bool scatters = p.cache.data != nullptr;
    void* const target = scatters ? p.cache.data : p.out;
    const i64 at = to + head * (scatters ? p.cache.head : p.out_head);
    StorePack<kTypeD, kPairs>(target, at + place.first, first);
    StorePack<kTypeD, kPairs>(target, at + place.second, second);
  }

  TW_DEVICE int FirstHead() const { return static_cast<int>(blockIdx.y) * p.cta_heads; }

  /// `turns`: those of the thread's first angle.
  TW_DEVICE void ComputeAngles(int position, u64 turns) const {
    for (int i = static_cast<int>(threadIdx.x); i < p.dims / 2; i += kThreads) {
      if (i >= kThreads) turns = p.turns[i];
      const SinCos value = SinCosOfTurns(position, turns);
      tables.cosines[i] = value.cos;
      tables.sines[i] = value.sin;
    }
  }

  template <bool kHalfSplit, int kPairs>
  TW_DEVICE void Heads() const {
    const int left = p.heads - FirstHead();
    const int end = (left < p.cta_heads ? left : p.cta_heads) * (p.head_dim / (2 * kPairs));
    int item = static_cast<int>(threadIdx.x);
    // All loads whose addresses are known start here: one after the other, position, page, turns and
    // elements would be four ways to the L2 and back.
    float first[kPairs], second[kPairs];
    if (item < end) Load<kHalfSplit, kPairs>(item, first, second);
    const u64 turns = item < p.dims / 2 ? p.turns[item] : 0;
    const int position = p.positions[row];
    const i64 to = p.cache.data != nullptr ? CachePlaceOf(p.cache, row) : row * p.out_row;
    if (position < 0 || to < 0) return;  // the whole CTA
    ComputeAngles(position, turns);
    __syncthreads();  // all angles are there before any pair is turned
    while (item < end) {
      Turn<kHalfSplit, kPairs>(item, first, second, to);
      item += kThreads;
      if (item < end) Load<kHalfSplit, kPairs>(item, first, second);
    }
  }

  TW_DEVICE void Run() const {
    if (p.half_split != 0) {
      if (p.wide != 0) {
        Heads<true, 4>();
      } else {
        Heads<true, 1>();
      }
    } else if (p.wide != 0) {
      Heads<false, 4>();
    } else {
      Heads<false, 1>();
    }
  }
};

}  // namespace tw
