#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/silu.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "tilewright/cuda/route_params.h"

// A warp chooses the experts of a row, whose logits lie in its registers, by keys that no two experts
// share: the order of the logit above that of the expert. The CTA then numbers the pairs of each
// expert among its rows. With one CTA the places follow at once; with more the last CTA to arrive adds
// up what all counted and writes the places of all pairs. Nothing depends on who comes first.

namespace tw {

using tilewright::cuda::kRouteChunkRows;
using tilewright::cuda::kRouteMostUsed;
using tilewright::cuda::RouteChunks;
using tilewright::cuda::RouteParams;

template <Type kType, int kMostExperts, int kWarps>
struct Route {
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kKept = kMostExperts / 32;  // logits of a lane

  struct Shared {
    int chosen[kRouteChunkRows * kRouteMostUsed];  // the expert of each pair of this CTA
    int first[kMostExperts + 1];                   // of each expert: its first place
    int sums[kWarps];
    u32 arrived;
  };

  const RouteParams& p;
  Shared& shared;

  static TW_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }
  static TW_DEVICE int Lane() { return Thread() % 32; }
  static TW_DEVICE int Warp() { return Thread() / 32; }

  /// Larger for a larger logit, never 0. -0 equals 0; NaN is minus infinity.
  static TW_DEVICE u32 OrderOf(float logit) {
    u32 bits = BitsOf(logit);
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0xff800000u;
    if (bits == 0x80000000u) bits = 0;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
  static TW_DEVICE float LogitOf(u32 order) {
    return FloatOf((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
  }

  /// The larger of two keys (order, expert) to `order` and `expert`: the higher order, then the lower
  /// expert.
  static TW_DEVICE void Better(u32& order, int& expert, u32 other_order, int other_expert) {
    if (other_order > order || (other_order == order && other_expert < expert))
      order = other_order, expert = other_expert;
  }

  /// The best expert of the warp's orders, in every lane.
  static TW_DEVICE void Best(const u32 (&orders)[kKept], u32& order, int& expert) {
    order = orders[0], expert = Lane();
    TW_UNROLL
    for (int i = 1; i < kKept; ++i) Better(order, expert, orders[i], 32 * i + Lane());
    TW_UNROLL
    for (int step = 16; step > 0; step /= 2) {
      const u32 other = OfPartner(order, step);
      Better(order, expert, other, static_cast<int>(OfPartner(static_cast<u32>(expert), step)));
    }
  }

  /// The experts of a row to `chosen`, best first, and its weights.
  TW_DEVICE void Choose(int row, int* chosen) const {
    u32 orders[kKept];
    float bad = 0.0f;  // NaN and infinities
    TW_UNROLL
    for (int i = 0; i < kKept; ++i) {
      const int e = 32 * i + Lane();
      orders[i] = 0;
      if (e >= p.experts) continue;
      const float logit = LoadElement<kType>(p.logits, row * p.logits_stride + e);
      if ((BitsOf(logit) & 0x7f800000u) == 0x7f800000u) bad = 1.0f;
      orders[i] = OrderOf(logit);
    }
    u32 most = 0;
    int best = 0;
    Best(orders, most, best);
    const float top = LogitOf(most);
    float sum = 0.0f;
    if (p.normalise == 0) {
      TW_UNROLL
      for (int i = 0; i < kKept; ++i)
        sum += orders[i] != 0 ? ExpOf(LogitOf(orders[i]) - top) : 0.0f;
      sum = WarpSum(sum);
    }
    const bool finite = WarpSum(bad) == 0.0f;
    float own = 0.0f;  // of lane j: that of the j-th best
    TW_NO_UNROLL
    for (int j = 0; j < p.used; ++j) {
      if (j > 0) Best(orders, most, best);
      TW_UNROLL
      for (int i = 0; i < kKept; ++i)
        if (best == 32 * i + Lane()) orders[i] = 0;
      if (Lane() == j) {
        own = ExpOf(LogitOf(most) - top);
        chosen[j] = best;
      }
    }
    if (p.normalise != 0) sum = WarpSum(own);
    if (Lane() >= p.used) return;
    const float weight = finite ? p.scale * (own / sum) : FloatOf(0x7fffffffu);
    StoreElement<kType>(p.weights, row * p.weights_stride + Lane(), weight);
  }

  /// The number of pair i among the pairs of its expert in this CTA.
  TW_DEVICE int RankOf(int i) const {
    const int expert = shared.chosen[i];
    int rank = 0;
    TW_NO_UNROLL
    for (int j = 0; j < i; ++j) rank += shared.chosen[j] == expert ? 1 : 0;
    return rank;
  }

  /// Counts in `first` become the sums of those in front; the sum of all comes behind them.
  TW_DEVICE void SumUp() const {
    constexpr int kOwn = (kMostExperts + kThreads - 1) / kThreads;
    int counts[kOwn];
    int own = 0;
    TW_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int e = Thread() * kOwn + i;
      counts[i] = e < p.experts ? shared.first[e] : 0;
      own += counts[i];
    }
    int before = 0,
        sum = own;  // of the lanes in front, and of all, in groups of twice as many lanes
    TW_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int other = static_cast<int>(OfPartner(static_cast<u32>(sum), step));
      if ((Lane() & step) != 0) before += other;
      sum += other;
    }
    if (Lane() == 0) shared.sums[Warp()] = sum;
    __syncthreads();  // every warp's sum is there, and all counts were read
    for (int warp = 0; warp < Warp(); ++warp) before += shared.sums[warp];
    TW_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int e = Thread() * kOwn + i;
      if (e <= p.experts) shared.first[e] = before;
      before += counts[i];
    }
    // Where the threads' experts end with the last one, nobody has stored the sum of all.
    if constexpr (kThreads * kOwn == kMostExperts) {
      if (Thread() == kThreads - 1 && p.experts == kMostExperts)
        shared.first[kMostExperts] = before;
    }
    __syncthreads();  // all places are known
    TW_NO_UNROLL
    for (int e = Thread(); e <= p.experts; e += kThreads) p.offsets[e] = shared.first[e];
  }

  /// Pair i of all, which is of `expert`, has place `place`.
  TW_DEVICE void Place(int i, int expert, int place) const {
    p.places[i] = place;
    p.sources[place] = i / p.used;
    if (p.experts_of != nullptr) p.experts_of[place] = expert;
  }

  /// Whether this CTA is the last to arrive.
  TW_DEVICE bool ArriveLast(int chunks) const {
    __syncthreads();  // all that this CTA counted is written
    if (Thread() == 0) {
      shared.arrived = Arrive(p.arrival);
      if (shared.arrived + 1 == static_cast<u32>(chunks)) *p.arrival = 0;  // for the next launch
    }
    __syncthreads();  // thread 0 knows
    return shared.arrived + 1 == static_cast<u32>(chunks);
  }

  /// Of the last CTA: what all have counted becomes the places of all pairs.
  TW_DEVICE void PlaceAll(int chunks) const {
    const i64 pairs = static_cast<i64>(p.rows) * p.used;
    TW_NO_UNROLL
    for (int e = Thread(); e < p.experts; e += kThreads) {
      int before = 0;
      TW_NO_UNROLL
      for (int chunk = 0; chunk < chunks; ++chunk) {
        int& count = p.partials[static_cast<i64>(chunk) * p.experts + e];
        const int own = count;
        count = before;
        before += own;
      }
      shared.first[e] = before;
    }
    __syncthreads();  // all counts are there
    SumUp();
    const int* ranks = p.partials + static_cast<i64>(chunks) * p.experts;
    TW_NO_UNROLL
    for (i64 i = Thread(); i < pairs; i += kThreads) {
      const int expert = p.places[i];
      const i64 chunk = i / (kRouteChunkRows * p.used);
      Place(static_cast<int>(i), expert,
            shared.first[expert] + p.partials[chunk * p.experts + expert] + ranks[i]);
    }
  }

  TW_DEVICE void Run(int chunk) const {
    const int chunks = RouteChunks(p.rows);
    const int first_row = chunk * kRouteChunkRows;
    const int rows = p.rows - first_row < kRouteChunkRows ? p.rows - first_row : kRouteChunkRows;
    TW_NO_UNROLL
    for (int e = Thread(); e < p.experts; e += kThreads) shared.first[e] = 0;
    TW_NO_UNROLL
    for (int row = Warp(); row < rows; row += kWarps)
      Choose(first_row + row, shared.chosen + row * p.used);
    __syncthreads();  // the experts of all pairs are there, and counts are zero
    const int pairs = rows * p.used, first_pair = first_row * p.used;
    TW_NO_UNROLL
    for (int i = Thread(); i < pairs; i += kThreads) atomicAdd(&shared.first[shared.chosen[i]], 1);
    __syncthreads();  // all pairs are counted
    if (chunks == 1) {
      SumUp();
      TW_NO_UNROLL
      for (int i = Thread(); i < pairs; i += kThreads)
        Place(i, shared.chosen[i], shared.first[shared.chosen[i]] + RankOf(i));
      return;
    }
    int* const ranks = p.partials + static_cast<i64>(chunks) * p.experts;
    TW_NO_UNROLL
    for (int e = Thread(); e < p.experts; e += kThreads)
      p.partials[static_cast<i64>(chunk) * p.experts + e] = shared.first[e];
    TW_NO_UNROLL
    for (int i = Thread(); i < pairs; i += kThreads) {
      ranks[first_pair + i] = RankOf(i);
      p.places[first_pair + i] = shared.chosen[i];
    }
    if (ArriveLast(chunks)) PlaceAll(chunks);
  }
};

}  // namespace tw
