#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/attention/cuda/kv_tile.cuh"

// Attention of few rows, in f32 on the plain units: a CTA computes one row's query heads of one key
// and value head, so that they share what is read. Sequences are divided into splits of a fixed
// length at fixed positions; each is computed from zero and folded into the result in ascending
// order, by one CTA after the other split or, if every split has a CTA, by the last of them to
// arrive: the same operations, so the same bits whatever the batch.

namespace tw {

struct alignas(16) F32x4 {
  float v[4];
};

/// The result over some splits: maximum of the scores, sum of the weights relative to it, and four
/// elements of the weighted sum of values.
struct Folded {
  float max, sum;
  F32x4 out;

  static TW_DEVICE Folded Nothing() { return {MinusInfinity(), 0.0f, {}}; }
  /// Milakov and Gimelshein 2018, Online normalizer calculation for softmax.
  TW_DEVICE void Fold(const Folded& next) {
    const float larger = LargerOf(max, next.max);
    const float keep = Exp2(max - larger);
    const float take = Exp2(next.max - larger);
    max = larger;
    sum = Fma(next.sum, take, sum * keep);
    TW_UNROLL
    for (int i = 0; i < 4; ++i) out.v[i] = Fma(next.out.v[i], take, out.v[i] * keep);
  }
};

/// Spec: kTypeQ (q and out), kTypeKv, kHeadDim, kMaxHeads (of a CTA), kSplit and kPositions (of a
/// split and of a tile), kWarps.
template <class Spec>
struct AttentionSplit {
  static constexpr Type kTypeQ = Spec::kTypeQ;
  static constexpr int kHeadDim = Spec::kHeadDim;
  static constexpr int kPositions = Spec::kPositions;
  static constexpr int kThreads = 32 * Spec::kWarps;
  using Tile = KvTile<Spec::kTypeKv, kHeadDim, kPositions, kThreads>;
  static constexpr int kPack = Tile::kPack;
  static constexpr int kChunks = Tile::kChunks;
  static constexpr int kParts = kThreads / kPositions;  // threads that share a score
  static constexpr int kLanes = 32 / kParts;            // positions of a warp
  static constexpr int kPartDims = kHeadDim / kParts;   // of one of those threads
  static constexpr int kGroups = kThreads / kChunks;    // threads that share an element's sum
  static constexpr int kLines = kPositions / kGroups;   // positions of one of those threads
  static constexpr int kUnits = kHeadDim / 4;           // of a head: four elements
  static_assert(kLanes >= 8 && kLanes <= 32 && kPartDims % kPack == 0, "a thread's part of a line");
  static_assert(Spec::kSplit % kPositions == 0 && kPositions % 32 == 0, "whole tiles");

  const AttentionParams& p;
  u8* tiles;  // shared: keys, values: [kPositions] lines each
  int heads;  // of this CTA
  int row, kv_head, first_head;

  // Shared, behind the tiles; h: heads.
  float* q;                  // [h][kHeadDim], scaled
  float* weights;            // [h][kPositions]: scores, then their exponentials
  F32x4* sums;               // [h][kPack / 4][kThreads]: values by weights, of a thread's positions
  F32x4* results;            // [h][kUnits]: over the splits before
  float *max, *sum, *decay;  // [h], of the split so far
  float *result_max, *result_sum;  // [h], over the splits before
  u32* arrived;

  TW_DEVICE AttentionSplit(const AttentionParams& params, u8* smem) : p(params), tiles(smem) {
    const int group = p.heads / p.kv_heads;
    const int blocks = (group + Spec::kMaxHeads - 1) / Spec::kMaxHeads;
    const int pair = static_cast<int>(blockIdx.x) / blocks;
    const int block = static_cast<int>(blockIdx.x) % blocks;
    row = pair / p.kv_heads;
    kv_head = pair % p.kv_heads;
    first_head = kv_head * group + block * Spec::kMaxHeads;
    const int left = group - block * Spec::kMaxHeads;
    heads = left < Spec::kMaxHeads ? left : Spec::kMaxHeads;
    float* at = reinterpret_cast<float*>(smem + 2 * Tile::kBytes);
    q = at, at += heads * kHeadDim;
    weights = at, at += heads * kPositions;
    sums = reinterpret_cast<F32x4*>(at), at += heads * kPack * kThreads;
    results = reinterpret_cast<F32x4*>(at), at += heads * kHeadDim;
    max = at, at += heads;
    sum = at, at += heads;
    decay = at, at += heads;
    result_max = at, at += heads;
    result_sum = at, at += heads;
    arrived = reinterpret_cast<u32*>(at);
  }

  static TW_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }
  static TW_DEVICE int Lane() { return Thread() % 32; }
  static TW_DEVICE int Warp() { return Thread() / 32; }
  TW_DEVICE u32 Keys() const { return SmemAddress(tiles); }
  TW_DEVICE u32 Values() const { return SmemAddress(tiles) + Tile::kBytes; }

  TW_DEVICE void LoadQueries() const {
    const float scale = QueryScale(p);
    for (int i = Thread(); i < heads * kHeadDim; i += kThreads) {
      const int head = i / kHeadDim;
      const i64 from = row * p.q_row + (first_head + head) * p.q_head + (i - head * kHeadDim);
      q[i] = LoadElement<kTypeQ>(p.q, from) * scale;
    }
  }

  /// weights = q . k of the tile from position `from` on.
  TW_DEVICE void Score(int from, const SeenRange& seen) const {
    const int part = Lane() / kLanes;
    const int line = Warp() * kLanes + Lane() % kLanes;
    float key[kPartDims];
    TW_UNROLL
    for (int c = 0; c < kPartDims / kPack; ++c) {
      u32 words[4];
      LoadShared16(words, Keys() + KvOffset(line, part * (kPartDims / kPack) + c, kChunks));
      Tile::Unpack(words, key + c * kPack);
    }
    const bool visible = from + line >= seen.first && from + line < seen.limit;
    TW_NO_UNROLL
    for (int h = 0; h < heads; ++h) {
      const F32x4* query = reinterpret_cast<const F32x4*>(q + h * kHeadDim + part * kPartDims);
      F32x4 dot = {};
      TW_UNROLL
      for (int d = 0; d < kPartDims / 4; ++d) {
        const F32x4 x = query[d];
        TW_UNROLL
        for (int i = 0; i < 4; ++i) dot.v[i] = Fma(x.v[i], key[4 * d + i], dot.v[i]);
      }
      float score = (dot.v[0] + dot.v[1]) + (dot.v[2] + dot.v[3]);
      TW_UNROLL
      for (int step = kLanes; step < 32; step *= 2)
        score += __shfl_xor_sync(kAllLanes, score, step);
      if (part == 0)
        weights[h * kPositions + line] = visible ? ExponentOf(p, score) : MinusInfinity();
    }
  }

  /// Scores become weights relative to the maximum so far; a warp for each head.
  TW_DEVICE void Weigh(bool fresh) const {
    constexpr int kEach = kPositions / 32;  // of a lane
    TW_NO_UNROLL
    for (int h0 = 0; h0 < heads; h0 += Spec::kWarps) {
      const int h = h0 + Warp();
      const bool mine = h < heads;  // there may be fewer heads than warps, but all shuffle
      float x[kEach];
      float top = MinusInfinity();
      TW_UNROLL
      for (int i = 0; i < kEach; ++i) {
        x[i] = mine ? weights[h * kPositions + Lane() + 32 * i] : MinusInfinity();
        top = LargerOf(top, x[i]);
      }
      const float before = fresh || !mine ? MinusInfinity() : max[h];
      const float sum_before = fresh || !mine ? 0.0f : sum[h];
      TW_UNROLL
      for (int step = 16; step > 0; step /= 2)
        top = LargerOf(top, __shfl_xor_sync(kAllLanes, top, step));
      const float after = LargerOf(before, top);
      float total = 0.0f;
      TW_UNROLL
      for (int i = 0; i < kEach; ++i) {
        x[i] = Exp2(x[i] - after);
        total += x[i];
      }
      total = WarpSum(total);
      if (!mine) continue;
      TW_UNROLL
      for (int i = 0; i < kEach; ++i) weights[h * kPositions + Lane() + 32 * i] = x[i];
      if (Lane() != 0) continue;
      const float shrink = fresh ? 0.0f : Exp2(before - after);
      max[h] = after;
      sum[h] = Fma(sum_before, shrink, total);
      decay[h] = shrink;
    }
  }

  /// sums = sums * decay + weights * values of the tile.
  TW_DEVICE void AddValues(bool fresh) const {
    const int chunk = Thread() % kChunks;
    const int group = Thread() / kChunks;
    float value[kLines][kPack];
    TW_UNROLL
    for (int i = 0; i < kLines; ++i) {
      u32 words[4];
      LoadShared16(words, Values() + KvOffset(group + i * kGroups, chunk, kChunks));
      Tile::Unpack(words, value[i]);
    }
    TW_NO_UNROLL
    for (int h = 0; h < heads; ++h) {
      F32x4* own = sums + h * (kPack / 4) * kThreads + Thread();
      const float shrink = decay[h];
      float total[kPack];
      TW_UNROLL
      for (int e = 0; e < kPack; ++e)
        total[e] = fresh ? 0.0f : own[e / 4 * kThreads].v[e % 4] * shrink;
      TW_UNROLL
      for (int i = 0; i < kLines; ++i) {
        const float weight = weights[h * kPositions + group + i * kGroups];
        TW_UNROLL
        for (int e = 0; e < kPack; ++e) total[e] = Fma(weight, value[i][e], total[e]);
      }
      TW_UNROLL
      for (int j = 0; j < kPack / 4; ++j) {
        own[j * kThreads] = {{total[4 * j], total[4 * j + 1], total[4 * j + 2], total[4 * j + 3]}};
      }
    }
  }

  /// Four elements of a split's result: the sum over the threads that share them.
  TW_DEVICE Folded SplitResult(int head, int unit) const {
    const int chunk = 4 * unit / kPack;
    const F32x4* from = sums + (head * (kPack / 4) + 4 * unit % kPack / 4) * kThreads + chunk;
    Folded result{max[head], sum[head], from[0]};
    TW_UNROLL
    for (int g = 1; g < kGroups; ++g) {
      const F32x4 more = from[g * kChunks];
      TW_UNROLL
      for (int i = 0; i < 4; ++i) result.out.v[i] += more.v[i];
    }
    return result;
  }

  /// Folds the split that is done into the result over those before.
  TW_DEVICE void FoldSplit(bool only) const {
    for (int u = Thread(); u < heads * kUnits; u += kThreads) {
      const int head = u / kUnits;
      Folded result = Folded::Nothing();
      if (!only) result = {result_max[head], result_sum[head], results[u]};
      result.Fold(SplitResult(head, u % kUnits));
      results[u] = result.out;
    }
    __syncthreads();  // everyone has read the maximum and the sum over the splits before
    if (Thread() < heads) {
      const int h = Thread();
      Folded result = Folded::Nothing();
      if (!only) result = {result_max[h], result_sum[h], {}};
      result.Fold({max[h], sum[h], {}});
      result_max[h] = result.max;
      result_sum[h] = result.sum;
    }
  }

  TW_DEVICE void Store(int head, int unit, const Folded& result) const {
    const float scale = 1.0f / result.sum;
    float out[4];
    TW_UNROLL
    for (int i = 0; i < 4; ++i) out[i] = result.out.v[i] * scale;
    StoreOut(head, unit, out);
  }
  TW_DEVICE void StoreOut(int head, int unit, const float (&out)[4]) const {
    const i64 at = row * p.out_row + (first_head + head) * kHeadDim + 4 * unit;
    if (PacksAligned<kTypeQ, 4>(p.out, p.out_row)) {
      StorePack<kTypeQ, 4>(p.out, at, out);
    } else {
      TW_UNROLL
      for (int i = 0; i < 4; ++i) StoreElement<kTypeQ>(p.out, at + i, out[i]);
    }
  }
  TW_DEVICE void StoreAll(float value) const {
    const float out[4] = {value, value, value, value};
    for (int u = Thread(); u < heads * kUnits; u += kThreads) StoreOut(u / kUnits, u % kUnits, out);
  }

  /// The only split of a row is its result: what Merge would make of its partial result, without
  /// the way through memory.
  TW_DEVICE void StoreOnly() const {
    for (int u = Thread(); u < heads * kUnits; u += kThreads) {
      Folded result = Folded::Nothing();
      result.Fold(SplitResult(u / kUnits, u % kUnits));
      Store(u / kUnits, u % kUnits, result);
    }
  }

  /// Number of this CTA's head in split `split` among all partial results.
  TW_DEVICE i64 PartialOf(int split, int head) const {
    const int most = p.heads / p.kv_heads;
    const i64 place = static_cast<i64>(blockIdx.x) * p.splits + split;
    return place * (most < Spec::kMaxHeads ? most : Spec::kMaxHeads) + head;
  }
  TW_DEVICE float* PartialSums() const { return p.partials; }
  /// Maximum and sum of each partial result, behind all the sums.
  TW_DEVICE float* PartialHeads() const {
    const int most = p.heads / p.kv_heads;
    const i64 all =
        static_cast<i64>(gridDim.x) * p.splits * (most < Spec::kMaxHeads ? most : Spec::kMaxHeads);
    return p.partials + all * kHeadDim;
  }

  TW_DEVICE void StorePartial(int split) const {
    for (int u = Thread(); u < heads * kUnits; u += kThreads) {
      const int head = u / kUnits;
      const Folded result = SplitResult(head, u % kUnits);
      const i64 partial = PartialOf(split, head);
      StorePack<Type::kF32, 4>(PartialSums(), partial * kHeadDim + u % kUnits * 4, result.out.v);
      if (u % kUnits != 0) continue;
      PartialHeads()[2 * partial] = result.max;
      PartialHeads()[2 * partial + 1] = result.sum;
    }
  }

  /// Folds the partial results of all splits of the row in ascending order.
  TW_DEVICE void Merge(int splits) const {
    constexpr int kAtOnce = 8;  // loads under way
    for (int u = Thread(); u < heads * kUnits; u += kThreads) {
      const int head = u / kUnits;
      Folded result = Folded::Nothing();
      TW_NO_UNROLL
      for (int s0 = 0; s0 < splits; s0 += kAtOnce) {
        Folded next[kAtOnce];
        TW_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          // Those behind the last are loaded again and not folded.
          const i64 partial = PartialOf(s0 + i < splits ? s0 + i : splits - 1, head);
          next[i].max = PartialHeads()[2 * partial];
          next[i].sum = PartialHeads()[2 * partial + 1];
          LoadPack<Type::kF32, 4>(PartialSums(), partial * kHeadDim + u % kUnits * 4,
                                  next[i].out.v);
        }
        TW_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          if (s0 + i < splits) result.Fold(next[i]);
        }
      }
      Store(head, u % kUnits, result);
    }
  }

  /// Whether this CTA is the last of `splits` to arrive.
  TW_DEVICE bool ArriveLast(u32 splits) const {
    __syncthreads();  // all of this CTA's partial results are written
    if (Thread() == 0) {
      u32* counter = p.arrivals + blockIdx.x;
      *arrived = Arrive(counter);
      if (*arrived + 1 == splits) *counter = 0;  // for the next launch
    }
    __syncthreads();  // thread 0 knows
    return *arrived + 1 == splits;
  }

  /// The splits from `split` to before `end`.
  TW_DEVICE void Compute(const SequenceCache& cache, SeenRange seen, int split, int end) const {
    if (seen.first < split * Spec::kSplit) seen.first = split * Spec::kSplit;
    if (seen.limit > end * Spec::kSplit) seen.limit = end * Spec::kSplit;
    const bool aligned = Tile::Aligned(p);
    const int start = seen.first / kPositions * kPositions;
    bool fresh = true;  // the split has no tile yet
    bool only = true;   // no split is folded yet
    // The first round only starts copies: they are large code, and there once.
    TW_NO_UNROLL
    for (int from = start - kPositions; from < seen.limit; from += kPositions) {
      const int next = from + kPositions;
      const bool computes = from >= start;
      if (computes) {
        CpAsyncWait<1>();
        __syncthreads();  // the keys, and q, are there
        Score(from, seen);
        __syncthreads();  // the scores are there, and the keys are read
      }
      if (next < seen.limit)
        Tile::template Copy<true>(Keys(), p.k_cache, cache, next, seen, aligned);
      CpAsyncCommit();
      if (computes) {
        Weigh(fresh);
        CpAsyncWait<1>();
        __syncthreads();  // the values and the weights are there
        AddValues(fresh);
        __syncthreads();  // the values and the weights are read, the sums written
      }
      if (next < seen.limit)
        Tile::template Copy<false>(Values(), p.v_cache, cache, next, seen, aligned);
      CpAsyncCommit();
      if (!computes) {
        LoadQueries();
        continue;
      }
      fresh = next % Spec::kSplit == 0;
      if (p.splits == 1 && (fresh || next >= seen.limit)) {
        FoldSplit(only);
        only = false;
      }
    }
  }

  TW_DEVICE void Run() const {
    const int position = p.positions[row];
    const bool exists =
        position >= 0 && position < p.context && p.slots[row] >= 0 && p.slots[row] < p.sequences;
    if (!exists) {
      if (blockIdx.y == 0) StoreAll(position == -1 ? 0.0f : FloatOf(0x7fffffffu));
      return;
    }
    const SeenRange seen = SeenBy(position, p.window);
    const SequenceCache cache(p, p.slots[row], kv_head);
    const int first = seen.first / Spec::kSplit;
    const int splits = position / Spec::kSplit + 1 - first;
    const bool whole = p.splits == 1;
    const int split = whole ? 0 : static_cast<int>(blockIdx.y);
    if (split >= splits) return;
    Compute(cache, seen, first + split, whole ? first + splits : first + split + 1);
    if (!whole && splits == 1) {
      StoreOnly();
      return;
    }
    if (!whole) {
      StorePartial(split);
      if (ArriveLast(static_cast<u32>(splits))) Merge(splits);
      return;
    }
    __syncthreads();  // the maximum and the sum of every head are there
    for (int u = Thread(); u < heads * kUnits; u += kThreads) {
      const int head = u / kUnits;
      Store(head, u % kUnits, {result_max[head], result_sum[head], results[u]});
    }
  }
};

}  // namespace tw
