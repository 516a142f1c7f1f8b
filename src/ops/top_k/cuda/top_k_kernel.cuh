#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/top_k_params.h"

// A CTA finds the k best of a chunk of a row, which lies in its registers; the last of a row's CTAs
// to arrive finds the k best of what they found. Everything is decided by keys of 64 bits, the
// order of the value above that of the column. No two columns have the same key, so the result is
// the same in whatever order threads and CTAs come.

namespace tw {

using tilewright::cuda::TopKChunks;
using tilewright::cuda::TopKParams;

template <Type kTypeA, int kMostK, int kWarps>
struct TopK {
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kKept = tilewright::cuda::kTopKChunk / kThreads;  // keys of a thread
  static constexpr int kPack = kTypeA == Type::kF32 ? 4 : 8;             // elements of 16 bytes
  static_assert(kMostK <= kThreads && kKept % kPack == 0);

  struct Shared {
    u64 best[kThreads];                                // of each thread
    u64 candidates[kMostK == 1 ? 1 : kMostK * kKept];  // in any order
    u64 found[kMostK];                                 // best first
    u64 threshold;
    int count;  // of candidates
    u32 arrived;
  };

  static constexpr u64 kNothing = 0;            // an excluded column, or none
  static constexpr u32 kNoOrder = 0xffffffffu;  // upper half of the key of NaN or infinity

  const TopKParams& p;
  Shared& shared;
  int row;

  static TW_DEVICE u64 KeyOf(float value, int column) {
    u32 bits = BitsOf(value);
    if (bits == 0xff800000u) return kNothing;
    u32 order = 0;
    if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0x7f800000u) {
      order = kNoOrder;
    } else {
      if (bits == 0x80000000u) bits = 0;  // -0 equals 0
      order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    }
    return static_cast<u64>(order) << 32 | static_cast<u32>(~column);
  }
  static TW_DEVICE int ColumnOf(u64 key) { return ~static_cast<int>(static_cast<u32>(key)); }
  static TW_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }

  /// The keys of this thread's elements of the chunk that begins at `first`.
  TW_DEVICE void LoadChunk(int first, u64 (&keys)[kKept]) const {
    const i64 start = row * p.in_stride;
    const bool aligned = PacksAligned<kTypeA, kPack>(p.in, p.in_stride);
    float x[kKept];
    // All loads before the first use: the row is waited for once.
    TW_UNROLL
    for (int j = 0; j < kKept; j += kPack) {
      const int c = first + j * kThreads + Thread() * kPack;
      float pack[kPack];
      if (aligned && c + kPack <= p.cols) {
        LoadPack<kTypeA, kPack>(p.in, start + c, pack);
      } else {
        TW_UNROLL
        for (int i = 0; i < kPack; ++i)
          pack[i] = c + i < p.cols ? LoadElement<kTypeA>(p.in, start + c + i) : -Infinity();
      }
      TW_UNROLL
      for (int i = 0; i < kPack; ++i) x[j + i] = pack[i];
    }
    TW_UNROLL
    for (int j = 0; j < kKept; ++j)
      keys[j] = KeyOf(x[j], first + (j - j % kPack) * kThreads + Thread() * kPack + j % kPack);
  }
  static TW_DEVICE float Infinity() { return FloatOf(0x7f800000u); }

  /// What the CTAs of this row found: chunks * k keys, at most kTopKChunk.
  TW_DEVICE void LoadPartials(u64 (&keys)[kKept]) const {
    const int count = TopKChunks(p.cols) * p.k;
    const u64* partials = p.partials + static_cast<i64>(row) * count;
    TW_UNROLL
    for (int j = 0; j < kKept; ++j) {
      const int i = j * kThreads + Thread();
      keys[j] = i < count ? partials[i] : kNothing;
    }
  }

  /// The largest key of all threads to found[0].
  TW_DEVICE void SelectBest(u64 own) const {
    shared.best[Thread()] = own;
    TW_NO_UNROLL
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();  // the pairs of the round before are done
      if (Thread() >= half) continue;
      const u64 other = shared.best[Thread() + half];
      if (other > shared.best[Thread()]) shared.best[Thread()] = other;
    }
    if (Thread() == 0) shared.found[0] = shared.best[0];
    __syncthreads();  // found is there
  }

  /// How many of `count` keys in shared memory are larger than `key`. Reads up to the next multiple
  /// of 8.
  static TW_DEVICE int RankOf(u64 key, const u64* keys, int count) {
    constexpr int kAtOnce = 8;  // loads that are waited for together
    int rank = 0;
    TW_NO_UNROLL
    for (int i = 0; i < count; i += kAtOnce) {
      TW_UNROLL
      for (int j = 0; j < kAtOnce; ++j) rank += i + j < count && keys[i + j] > key ? 1 : 0;
    }
    return rank;
  }

  /// The k largest keys to found, in order, and kNothing behind them. The k-th largest of the
  /// threads' best keys is at most the k-th largest of all, so only keys from it on are candidates.
  /// They are those of k threads, kMostK * kKept at most.
  TW_DEVICE void SelectMany(u64 own, const u64 (&keys)[kKept]) const {
    shared.best[Thread()] = own;
    if (Thread() < kMostK) shared.found[Thread()] = kNothing;
    if (Thread() == 0) {
      shared.threshold = kNothing;
      shared.count = 0;
    }
    __syncthreads();  // the best keys and the initial values are there
    if (own != kNothing && RankOf(own, shared.best, kThreads) == p.k - 1) shared.threshold = own;
    __syncthreads();  // the threshold is known
    const u64 threshold = shared.threshold;
    if (own != kNothing && own >= threshold) {
      TW_UNROLL
      for (int j = 0; j < kKept; ++j) {
        if (keys[j] != kNothing && keys[j] >= threshold)
          shared.candidates[atomicAdd(&shared.count, 1)] = keys[j];
      }
    }
    __syncthreads();  // all candidates are there
    const int count = shared.count;
    TW_NO_UNROLL
    for (int i = Thread(); i < count; i += kThreads) {
      const u64 key = shared.candidates[i];
      const int rank = RankOf(key, shared.candidates, count);
      if (rank < p.k) shared.found[rank] = key;
    }
    __syncthreads();  // found is there
  }

  TW_DEVICE void Select(const u64 (&keys)[kKept]) const {
    u64 own = keys[0];
    TW_UNROLL
    for (int j = 1; j < kKept; ++j) own = keys[j] > own ? keys[j] : own;
    if constexpr (kMostK == 1) {
      SelectBest(own);
    } else {
      SelectMany(own, keys);
    }
  }

  /// Whether this CTA is the last of its row to arrive, `found` of all others then being there.
  TW_DEVICE bool ArriveLast(int chunk, int chunks) const {
    if (Thread() < p.k) {
      const i64 at = (static_cast<i64>(row) * chunks + chunk) * p.k + Thread();
      p.partials[at] = shared.found[Thread()];
    }
    __syncthreads();  // all that this CTA found is written
    if (Thread() == 0) {
      u32* counter = p.arrivals + row;
      shared.arrived = Arrive(counter);
      if (shared.arrived + 1 == static_cast<u32>(chunks)) *counter = 0;  // for the next launch
    }
    __syncthreads();  // thread 0 knows
    return shared.arrived + 1 == static_cast<u32>(chunks);
  }

  /// The row's best to the pass that follows and to whoever reads `found`.
  TW_DEVICE void HandOver(int id) const {
    if (p.tokens == nullptr || p.positions[row] < 0) return;
    const int turn = p.turns[row];
    p.tokens[row] = id;
    p.found[turn * p.found_stride + row] = id;
    p.positions[row] += 1;
    p.turns[row] = turn + 1 < p.found_turns ? turn + 1 : 0;
  }

  TW_DEVICE void Store() const {
    if (Thread() >= p.k) return;
    const u64 key = shared.found[Thread()];
    const bool ordered = static_cast<u32>(shared.found[0] >> 32) != kNoOrder;
    const int id = ordered && key != kNothing ? ColumnOf(key) : -1;
    p.ids[row * p.ids_stride + Thread()] = id;
    if constexpr (kMostK == 1) HandOver(id);
    if (p.values == nullptr) return;
    float value = ordered ? -Infinity() : FloatOf(0x7fffffffu);
    if (id >= 0) value = LoadElement<kTypeA>(p.in, row * p.in_stride + id);
    p.values[row * p.values_stride + Thread()] = value;
  }

  TW_DEVICE void Run(int chunk) const {
    const int chunks = TopKChunks(p.cols);
    u64 keys[kKept];
    LoadChunk(chunk * tilewright::cuda::kTopKChunk, keys);
    Select(keys);
    if (chunks > 1) {
      if (!ArriveLast(chunk, chunks)) return;
      LoadPartials(keys);
      Select(keys);
    }
    Store();
  }
};

}  // namespace tw
