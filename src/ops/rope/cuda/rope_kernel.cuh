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

using tilewright::cuda::kMaxRopeDims;
using tilewright::cuda::RopeHeadsParams;

struct alignas(16) RopeTables {
  float cosines[kMaxRopeDims / 2];
  float sines[kMaxRopeDims / 2];
};

/// Types: in, and out or the cache.
template <Type kTypeA, Type kTypeD, int kWarps>
struct RopeHeads {
  static constexpr int kThreads = kWarps * 32;

  const RopeHeadsParams& p;
  RopeTables& tables;  // shared
  int row;

  /// Reads, turns and writes item `item` of a head; an item's elements are nobody else's, so a head
  /// may be turned in place.
  template <bool kHalfSplit, int kPairs>
  TW_DEVICE void Turn(i64 from, void* target, i64 to, int item) const {
    const RopePlace place = RopePlaceOf<kHalfSplit, kPairs>(item, p.dims);
    float first[kPairs], second[kPairs];
    LoadPack<kTypeA, kPairs>(p.in, from + place.first, first);
    LoadPack<kTypeA, kPairs>(p.in, from + place.second, second);
    if (place.turns) {
      float x[2 * kPairs];
      TW_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        x[i] = first[i];
        x[i + kPairs] = second[i];
      }
      RopeTurn<kHalfSplit, kPairs>(tables.cosines + kPairs * item, tables.sines + kPairs * item, x);
      TW_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        first[i] = x[i];
        second[i] = x[i + kPairs];
      }
    }
    StorePack<kTypeD, kPairs>(target, to + place.first, first);
    StorePack<kTypeD, kPairs>(target, to + place.second, second);
  }

  template <bool kHalfSplit, int kPairs>
  TW_DEVICE void Heads(void* target, i64 to, i64 to_head) const {
    const int items = p.head_dim / (2 * kPairs);
    const int first_head = static_cast<int>(blockIdx.y) * p.cta_heads;
    for (int i = static_cast<int>(threadIdx.x); i < p.cta_heads * items; i += kThreads) {
      const int head = first_head + i / items;
      if (head >= p.heads) return;
      Turn<kHalfSplit, kPairs>(row * p.in_row + head * p.in_head, target, to + head * to_head,
                               i % items);
    }
  }

  TW_DEVICE void ComputeAngles(int position) const {
    for (int i = static_cast<int>(threadIdx.x); i < p.dims / 2; i += kThreads) {
      const SinCos value = SinCosOfTurns(position, p.turns[i]);
      tables.cosines[i] = value.cos;
      tables.sines[i] = value.sin;
    }
  }

  TW_DEVICE void Run() const {
    const int position = p.positions[row];
    const bool scatters = p.cache.data != nullptr;
    const i64 to = scatters ? CachePlaceOf(p.cache, row) : row * p.out_row;
    if (position < 0 || to < 0) return;  // the whole CTA
    ComputeAngles(position);
    __syncthreads();  // all angles are there before any pair is turned
    void* const target = scatters ? p.cache.data : p.out;
    const i64 to_head = scatters ? p.cache.head : p.out_head;
    if (p.half_split != 0) {
      if (p.wide != 0) {
        Heads<true, 4>(target, to, to_head);
      } else {
        Heads<true, 1>(target, to, to_head);
      }
    } else if (p.wide != 0) {
      Heads<false, 4>(target, to, to_head);
    } else {
      Heads<false, 1>(target, to, to_head);
    }
  }
};

}  // namespace tw
