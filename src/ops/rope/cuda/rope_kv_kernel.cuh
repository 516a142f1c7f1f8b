#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/rope/cuda/rope_angle.cuh"
#include "tilewright/cuda/rope_kv_params.h"

// Rotary embedding of q and k and the scatter of k and v into the cache in one pass over memory. A
// CTA has one row and some of its heads (q's, then k's, then v's): it computes the row's sines and
// cosines once, into shared memory, and its threads take eight elements at a time.

namespace tw {

using tilewright::cuda::RopeKvParams;

/// Types: q, k and v; caches; q_out.
template <Type kTypeA, Type kTypeC, Type kTypeD, int kWarps>
struct RopeKv {
  static constexpr int kThreads = kWarps * 32;

  const RopeKvParams& p;
  RopeTables& tables;  // shared
  int row;

  TW_DEVICE int FirstHead() const { return static_cast<int>(blockIdx.y) * p.cta_heads; }
  TW_DEVICE bool Turns(int head) const { return head < p.heads + p.kv_heads; }

  /// Elements of item `item` of the CTA's: each is one thread's alone, so that q may be turned in
  /// place.
  template <bool kHalfSplit, int kPairs>
  TW_DEVICE void Load(int item, float (&first)[kPairs], float (&second)[kPairs]) const {
    const int items = p.head_dim / (2 * kPairs), head = FirstHead() + item / items;
    const RopePlace place = RopePlaceOf<kHalfSplit, kPairs>(item % items, p.dims);
    const void* source = p.q;
    i64 from = row * p.q_row + head * p.q_head;
    if (!Turns(head)) {
      source = p.v;
      from = row * p.v_row + (head - p.heads - p.kv_heads) * p.v_head;
    } else if (head >= p.heads) {
      source = p.k;
      from = row * p.k_row + (head - p.heads) * p.k_head;
    }
    LoadPack<kTypeA, kPairs>(source, from + place.first, first);
    LoadPack<kTypeA, kPairs>(source, from + place.second, second);
  }

  /// Turns them, unless they are of v, and writes them; `line`, `page`: the row's place.
  template <bool kHalfSplit, int kPairs>
  TW_DEVICE void Move(int item, float (&first)[kPairs], float (&second)[kPairs], int line,
                      int page) const {
    const int items = p.head_dim / (2 * kPairs), head = FirstHead() + item / items;
    const RopePlace place = RopePlaceOf<kHalfSplit, kPairs>(item % items, p.dims);
    if (place.turns && Turns(head)) {
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
    if (head < p.heads) {
      const i64 to = row * p.q_out_row + head * p.q_out_head;
      StorePack<kTypeD, kPairs>(p.q_out, to + place.first, first);
      StorePack<kTypeD, kPairs>(p.q_out, to + place.second, second);
      return;
    }
    void* target = p.cache.data;
    i64 to = (head - p.heads) * p.cache.head + line * p.cache.position + page * p.cache.page;
    if (!Turns(head)) {
      target = p.v_cache;
      to = (head - p.heads - p.kv_heads) * p.v_cache_head + line * p.v_cache_position +
           page * p.v_cache_page;
    }
    StorePack<kTypeC, kPairs>(target, to + place.first, first);
    StorePack<kTypeC, kPairs>(target, to + place.second, second);
  }

  /// `turns`: those of the thread's first angle.
  TW_DEVICE void ComputeAngles(int position, u64 turns) const {
    for (int i = static_cast<int>(threadIdx.x); i < p.dims / 2; i += kThreads) {
      if (i >= kThreads) turns = p.turns[i];
      const SinCos value = SinCosOfTurns(position, turns);
      tables.cosines[i] = value.cos;
      tables.sines[i] = value.sin;
    }
  }

  TW_DEVICE void Report() const {
    if (p.fault != nullptr && blockIdx.y == 0 && threadIdx.x == 0) atomicMax(p.fault, row + 1);
  }

  template <bool kHalfSplit, int kPairs>
  TW_DEVICE void Heads() const {
    const int left = p.heads + 2 * p.kv_heads - FirstHead();
    const int end = (left < p.cta_heads ? left : p.cta_heads) * (p.head_dim / (2 * kPairs));
    const bool turns_any = Turns(FirstHead()), caches = p.kv_heads > 0;
    int item = static_cast<int>(threadIdx.x);
    // All loads whose addresses are known start here, and the page's with the first that comes back:
    // it is on its way while the angles are computed.
    float first[kPairs], second[kPairs];
    if (item < end) Load<kHalfSplit, kPairs>(item, first, second);
    const u64 turns = turns_any && item < p.dims / 2 ? p.turns[item] : 0;
    const int position = p.cache.positions[row], slot = caches ? p.cache.slots[row] : 0;
    if (position < 0 ||
        (caches && (position >= p.cache.context || slot < 0 || slot >= p.cache.slot_count))) {
      return Report();  // the whole CTA
    }
    int line = position, page = slot;
    const bool paged = caches && p.cache.pages != nullptr;
    if (paged) {
      line = position % p.cache.page_size;
      page = p.cache.pages[slot * p.cache.pages_slot + position / p.cache.page_size];
    }
    if (turns_any) {
      ComputeAngles(position, turns);
      __syncthreads();  // all angles are there before any pair is turned
    }
    if (paged && (page < 0 || page >= p.cache.page_count)) return Report();  // the whole CTA
    while (item < end) {
      Move<kHalfSplit, kPairs>(item, first, second, line, page);
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
