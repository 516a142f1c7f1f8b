#pragma once

#include "device/cuda/kernels/arrive.cuh"
#include "device/cuda/kernels/cluster.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/ldmatrix.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/mma.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/attention/cuda/kv_tile.cuh"

// Attention of few rows on tensor cores (mma.sync, sm_80 and newer): a CTA computes one row's query
// heads, at most 8, of one key and value head. What a row sees is dealt in tiles of 16 positions to
// the warps of gridDim.y CTAs, whatever its length. Their parts are merged by the last CTA to arrive,
// through memory; or, where they are a cluster (sm_90), by all of them, each some elements, through
// shared memory: no write to memory is waited for.
//
// A launch over a short sequence is one chain of latencies: position, page, keys, result. So each
// warp is on its own until the end: it copies 16 positions at a time into its own ring, many rounds
// ahead, and keeps its own maximum and sums. Positions are the 16 rows of a product and heads its 8
// columns, so that few heads waste little: scores are K . Q^T, results are V^T . P^T, and a column
// of both is in the same threads.
//
// Weights are multiplied in two parts of the cache's type, the second the rounding error of the
// first: with one part, the result would differ from the oracle's by the rounding of weights.

namespace tw {

/// The result over some positions: maximum of the scores, sum of the weights relative to it, and
/// four elements of the weighted sum of values.
struct alignas(8) Normaliser {
  float max, sum;
};

/// Spec: kType (q, caches and out), kHeadDim, kWarps, kStages (of a warp's ring), kCluster (CTAs of
/// a row that are a cluster, 1: none), kForesees (whether caches are prefetched ahead of the wait for
/// earlier kernels).
template <class Spec>
struct AttentionDecode {
  static constexpr Type kType = Spec::kType;
  static constexpr int kHeadDim = Spec::kHeadDim;
  static constexpr int kMaxHeads = 8;
  static constexpr int kWarps = Spec::kWarps;
  static constexpr int kStages = Spec::kStages;
  static constexpr int kCluster = Spec::kCluster;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kLines = 16;  // positions of a warp's tile
  using Tile = KvTile<kType, kHeadDim, kLines, 32>;
  static constexpr int kChunks = Tile::kChunks;
  static constexpr int kCopies = kLines * kChunks / 32;  // of a lane for one tile
  static constexpr int kSteps = kHeadDim / 16;           // of 16 elements of a head
  static constexpr int kUnits = kHeadDim / 4;            // of a head: four elements
  static constexpr int kWarpBytes = 2 * kStages * Tile::kBytes;
  /// Units of a row's heads that a CTA of a cluster merges.
  static constexpr int kMostUnitsEach = kMaxHeads * kUnits / kCluster;
  static_assert(kUnits % kCluster == 0, "units of all heads are evenly divided");
  /// Floats of a head in a warp's result: the lanes of a warp meet no bank conflict.
  static constexpr int kResultStride = kHeadDim + 4;
  static_assert(kType == Type::kBF16 || kType == Type::kF16, "16-bit elements");
  static_assert(4 * kMaxHeads * kResultStride <= kWarpBytes, "a warp's result takes its ring");

  const AttentionParams& p;
  u8* shared;          // [kWarps] rings: [kStages] tiles of keys, then of values; then results
  Normaliser* norms;   // shared: [kWarps][kMaxHeads]
  u32* arrived;        // shared
  u32 parts_of_units;  // shared: [kCluster][kMostUnitsEach] sums of four, then as many normalisers
  int row, kv_head, first_head;
  int heads;  // of this CTA
  int lane, warp;
  u32 page_inverse;
  u32 q[kSteps][2];      // Q^T as B of mma.sync
  float out[kSteps][4];  // V^T . P^T as D of mma.sync: 16 elements of a head by 8 heads
  float max[2], sum[2];  // of heads 2t and 2t + 1; the sum is of this thread's positions

  TW_DEVICE AttentionDecode(const AttentionParams& params, u8* smem)
      : p(params),
        shared(smem),
        norms(reinterpret_cast<Normaliser*>(smem + kWarps * kWarpBytes)),
        arrived(reinterpret_cast<u32*>(norms + kWarps * kMaxHeads)),
        parts_of_units(SmemAddress(arrived) + 16),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        page_inverse(SequenceCache::PageInverse(p)) {
    const int group = p.heads / p.kv_heads;
    const int blocks = (group + kMaxHeads - 1) / kMaxHeads;
    const int pair = static_cast<int>(blockIdx.x) / blocks;
    const int block = static_cast<int>(blockIdx.x) - pair * blocks;
    row = pair / p.kv_heads;
    kv_head = pair - row * p.kv_heads;
    first_head = kv_head * group + block * kMaxHeads;
    const int left = group - block * kMaxHeads;
    heads = left < kMaxHeads ? left : kMaxHeads;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      max[h] = MinusInfinity();
      sum[h] = 0.0f;
    }
    TW_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      TW_UNROLL
      for (int i = 0; i < 4; ++i) out[step][i] = 0.0f;
    }
  }

  TW_DEVICE u32 Keys(int stage) const {
    return SmemAddress(shared) + static_cast<u32>(warp * kWarpBytes + stage * Tile::kBytes);
  }
  TW_DEVICE u32 Values(int stage) const { return Keys(kStages + stage); }

  /// Zeros for heads that the CTA does not have.
  TW_DEVICE void LoadQueries() {
    const int head = lane / 4;
    const i64 from = row * p.q_row + (first_head + head) * p.q_head + lane % 4 * 2;
    const u16* at = static_cast<const u16*>(p.q) + from;
    TW_UNROLL
    for (int i = 0; i < 2 * kSteps; ++i) q[i / 2][i % 2] = 0;
    if (head >= heads) return;
    if (reinterpret_cast<u64>(p.q) % 4 == 0 && (p.q_row | p.q_head) % 2 == 0) {
      TW_UNROLL
      for (int i = 0; i < 2 * kSteps; ++i) q[i / 2][i % 2] = LoadOnce4(at + 8 * i);
    } else {
      TW_UNROLL
      for (int i = 0; i < 2 * kSteps; ++i)
        q[i / 2][i % 2] = at[8 * i] | static_cast<u32>(at[8 * i + 1]) << 16;
    }
  }

  /// What of a line is looked up: where its page is said to lie; some other address of a number that
  /// may be read if there is nothing to look up.
  TW_DEVICE const int* PageEntry(const SequenceCache& cache, int position, int end) const {
    const bool paged = cache.table != nullptr && position < end;
    return paged ? cache.table + cache.LogicalPage(position) : p.positions + row;
  }
  /// Where the lane's line of a tile lies: those at `end` and behind are behind, and nobody looks up
  /// their pages.
  static constexpr i64 kBehind = -1, kMissing = -2;
  TW_DEVICE i64 LookUp(const SequenceCache& cache, int page, int position, int end) const {
    i64 place = kBehind;
    if (position < end && !cache.FindIn(page, position, place)) place = kMissing;
    return place;
  }
  TW_DEVICE i64 LookUp(const SequenceCache& cache, int from, int end) const {
    const int position = from + lane % kLines;
    return LookUp(cache, *PageEntry(cache, position, end), position, end);
  }

  /// Line of the tile whose chunk `lane % kChunks` is the lane's `i`-th.
  TW_DEVICE int LineOf(int i) const { return lane / kChunks + i * (32 / kChunks); }
  TW_DEVICE i64 PlaceOf(i64 mine, int i) const {
    const u32 low = FromLane(static_cast<u32>(mine), LineOf(i));
    const u32 high = FromLane(static_cast<u32>(mine >> 32), LineOf(i));
    return static_cast<i64>(static_cast<u64>(high) << 32 | low);
  }
  /// Starts the copies of a tile, whose lines each lane has looked up one of: zeros for what is
  /// behind, and NaN for keys whose pages do not exist.
  TW_DEVICE void Copy(i64 mine, int stage, bool aligned) const {
    const int chunk = lane % kChunks;
    const u8* keys = static_cast<const u8*>(p.k_cache) + 16 * chunk;
    const u8* values = static_cast<const u8*>(p.v_cache) + 16 * chunk;
    if (aligned && !AnyLane(mine == kMissing)) {
      TW_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        const i64 place = PlaceOf(mine, i);
        const u32 to = KvOffset(LineOf(i), chunk, kChunks);
        CpAsync16OrZeros(Keys(stage) + to, keys + 2 * place, place >= 0);
        CpAsync16OrZeros(Values(stage) + to, values + 2 * place, place >= 0);
      }
    } else {
      TW_NO_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        const i64 place = PlaceOf(mine, i);
        const u32 to = KvOffset(LineOf(i), chunk, kChunks);
        if (place < 0) {
          const u32 word = place == kMissing ? ~0u : 0u;
          StoreShared16(Keys(stage) + to, word, word, word, word);
          StoreShared16(Values(stage) + to, 0, 0, 0, 0);
        } else {
          Tile::CopyElements(Keys(stage) + to, keys + 2 * place);
          Tile::CopyElements(Values(stage) + to, values + 2 * place);
        }
      }
    }
  }

  /// s = K . Q^T, as D of mma.sync: 16 positions by 8 heads.
  TW_DEVICE void Score(float (&s)[4], u32 keys) const {
    float odd[4];
    TW_UNROLL
    for (int i = 0; i < 4; ++i) s[i] = odd[i] = 0.0f;
    TW_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      u32 key[4];
      const int line = lane / 8 % 2 * 8 + lane % 8;
      LdMatrixX4(key, keys + KvOffset(line, 2 * step + lane / 16, kChunks));
      // Two chains of sums: one would be a chain of latencies.
      Mma16816<kType>(step % 2 == 0 ? s : odd, key, q[step][0], q[step][1]);
    }
    TW_UNROLL
    for (int i = 0; i < 4; ++i) s[i] += odd[i];
  }

  /// Scores become weights relative to the maximum so far; `seen`: how many positions of the tile.
  TW_DEVICE void Weigh(float (&s)[4], int seen) {
    CapScores(p, s);
    const float scale = ExponentScale(p);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      float top = MinusInfinity();
      TW_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& score = s[2 * i + h];
        score = 8 * i + lane / 4 < seen ? score * scale : MinusInfinity();
        top = LargerOf(top, score);
      }
      TW_UNROLL
      for (int step = 4; step < 32; step *= 2)
        top = LargerOf(top, __shfl_xor_sync(kAllLanes, top, step));
      const float after = LargerOf(max[h], top);
      // A warp that has seen nothing yet has weights of zero, not of exp(inf - inf).
      const float base = after == MinusInfinity() ? 0.0f : after;
      const float shrink = Exp2(max[h] - base);
      max[h] = after;
      TW_UNROLL
      for (int i = 0; i < 2; ++i) s[2 * i + h] = Exp2(s[2 * i + h] - base);
      sum[h] = Fma(sum[h], shrink, s[h] + s[2 + h]);
      TW_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        out[step][h] *= shrink;
        out[step][2 + h] *= shrink;
      }
    }
  }

  /// out += V^T . P^T
  TW_DEVICE void AddValues(float (&s)[4], u32 values) {
    u32 weights[2][2];
    TW_UNROLL
    for (int part = 0; part < 2; ++part) {
      TW_UNROLL
      for (int i = 0; i < 2; ++i) {
        const u32 word = PackPairOf<kType>(s[2 * i], s[2 * i + 1]);
        s[2 * i] -= LowToF32<kType>(word);
        s[2 * i + 1] -= HighToF32<kType>(word);
        weights[part][i] = TransposeMatrix(word);
      }
    }
    TW_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      u32 value[4];
      const int line = lane / 16 * 8 + lane % 8;
      LdMatrixX4Trans(value, values + KvOffset(line, 2 * step + lane / 8 % 2, kChunks));
      TW_UNROLL
      for (int part = 0; part < 2; ++part)
        Mma16816<kType>(out[step], value, weights[part][0], weights[part][1]);
    }
  }

  /// Every parts-th tile of a warp of what a row sees.
  struct Share {
    int parts;         // CTAs that the row is dealt to
    int first, limit;  // positions: of the warp's first tile, and behind the last that is seen
    int step, rounds;  // positions between tiles, and how many of them the warps with most have
  };
  TW_DEVICE Share ShareOf(int position) const {
    const SeenRange seen = SeenBy(position, p.window);
    const int tiles = (seen.limit - seen.first + kLines - 1) / kLines;
    const int needed = (tiles + kWarps - 1) / kWarps;
    Share share;
    share.parts = kCluster > 1 ? kCluster : needed < p.splits ? needed : p.splits;
    share.first = seen.first + (static_cast<int>(blockIdx.y) * kWarps + warp) * kLines;
    share.limit = seen.limit;
    share.step = share.parts * kWarps * kLines;
    share.rounds = (seen.limit - seen.first + share.step - 1) / share.step;
    return share;
  }
  TW_DEVICE bool Exists(int position, int slot) const {
    return position >= 0 && position < p.context && slot >= 0 && slot < p.sequences;
  }

  /// What a row sees, and where it lies. Ahead of the wait for earlier kernels, which may be about to
  /// write where that is, a guess.
  struct View {
    int position, slot;
    Share share;
    SequenceCache cache;
  };
  TW_DEVICE View ViewOf(int position, int slot) const {
    const bool exists = Exists(position, slot);
    return {position, slot, ShareOf(exists ? position : 0),
            SequenceCache(p, exists ? slot : 0, kv_head, page_inverse)};
  }
  /// Starts the way of the first tiles of a guess into L2.
  TW_DEVICE void Prefetch(const View& guess) const {
    constexpr int kMost = 4;  // tiles of a warp
    if (!Exists(guess.position, guess.slot) || !Tile::Aligned(p)) return;
    const Share& share = guess.share;
    const u8* base = static_cast<const u8*>(lane < kLines ? p.k_cache : p.v_cache);
    TW_NO_UNROLL
    for (int round = 0; round < share.rounds && round < kMost; ++round) {
      const int at = share.first + round * share.step + lane % kLines;
      const int page = ReadAhead(PageEntry(guess.cache, at, share.limit));
      const i64 place = LookUp(guess.cache, page, at, share.limit);
      if (place >= 0) PrefetchToL2(base + 2 * place, 2 * kHeadDim);
    }
  }

  /// All warps make the same number of rounds.
  /// `place`: where the lane's line of the first tile lies.
  TW_DEVICE void Compute(const SequenceCache& cache, const Share& share, i64 place) {
    const bool aligned = Tile::Aligned(p);
    int stage = 0;
    // Looked up a round ahead: behind the products, or the copies before, copies would wait for it.
    // The first rounds only start copies: they are large code, and there once.
    TW_NO_UNROLL
    for (int round = -kStages; round < share.rounds; ++round) {
      const int tile = share.first + round * share.step;
      const i64 next = LookUp(cache, tile + (kStages + 1) * share.step, share.limit);
      if (round >= 0) {
        float s[4];
        CpAsyncWait<kStages - 1>();
        __syncwarp();  // the tile of all lanes is there
        Score(s, Keys(stage));
        Weigh(s, share.limit - tile);
        AddValues(s, Values(stage));
        __syncwarp();  // all lanes have read the stage
      }
      if (round + kStages < share.rounds) Copy(place, stage, aligned);
      CpAsyncCommit();  // a group for each round, empty or not
      place = next;
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
  }

  TW_DEVICE float* ResultOf(int of_warp) const {
    return reinterpret_cast<float*>(shared + of_warp * kWarpBytes);
  }

  /// The warp's result into the memory of its ring.
  TW_DEVICE void KeepResult() {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      TW_UNROLL
      for (int step = 4; step < 32; step *= 2) sum[h] += __shfl_xor_sync(kAllLanes, sum[h], step);
      const int head = lane % 4 * 2 + h;
      if (head >= heads) continue;
      if (lane < 4) norms[warp * kMaxHeads + head] = {max[h], sum[h]};
      float* to = ResultOf(warp) + head * kResultStride + lane / 4;
      TW_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        to[16 * step] = out[step][h];
        to[16 * step + 8] = out[step][2 + h];
      }
    }
  }

  /// Four elements of a head, of all warps.
  TW_DEVICE Normaliser Combine(int head, int unit, float (&total)[4]) const {
    Normaliser all{MinusInfinity(), 0.0f};
    TW_UNROLL
    for (int w = 0; w < kWarps; ++w) all.max = LargerOf(all.max, norms[w * kMaxHeads + head].max);
    const float base = all.max == MinusInfinity() ? 0.0f : all.max;
    TW_UNROLL
    for (int i = 0; i < 4; ++i) total[i] = 0.0f;
    TW_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      const Normaliser norm = norms[w * kMaxHeads + head];
      const float take = Exp2(norm.max - base);
      const U32x4 part =
          *reinterpret_cast<const U32x4*>(ResultOf(w) + head * kResultStride + 4 * unit);
      all.sum = Fma(norm.sum, take, all.sum);
      TW_UNROLL
      for (int i = 0; i < 4; ++i) total[i] = Fma(FloatOf(part.v[i]), take, total[i]);
    }
    return all;
  }

  TW_DEVICE void Store(int head, int unit, const float (&out_of)[4]) const {
    const i64 at = row * p.out_row + (first_head + head) * kHeadDim + 4 * unit;
    if (PacksAligned<kType, 4>(p.out, p.out_row)) {
      StorePack<kType, 4>(p.out, at, out_of);
    } else {
      TW_UNROLL
      for (int i = 0; i < 4; ++i) StoreElement<kType>(p.out, at + i, out_of[i]);
    }
  }
  TW_DEVICE void StoreScaled(int head, int unit, float (&total)[4], float sum_of) const {
    const float scale = 1.0f / sum_of;
    TW_UNROLL
    for (int i = 0; i < 4; ++i) total[i] *= scale;
    Store(head, unit, total);
  }
  TW_DEVICE void StoreAll(float value) const {
    const float all[4] = {value, value, value, value};
    for (int u = static_cast<int>(threadIdx.x); u < heads * kUnits; u += kThreads)
      Store(u / kUnits, u % kUnits, all);
  }

  /// Number of this CTA's head in part `part` among all partial results.
  TW_DEVICE i64 PartialOf(int part, int head) const {
    const int group = p.heads / p.kv_heads;
    const i64 place = static_cast<i64>(blockIdx.x) * p.splits + part;
    return place * (group < kMaxHeads ? group : kMaxHeads) + head;
  }
  /// Of each partial result, behind all the sums.
  TW_DEVICE Normaliser* PartialNorms() const {
    const int group = p.heads / p.kv_heads;
    const i64 all =
        static_cast<i64>(gridDim.x) * p.splits * (group < kMaxHeads ? group : kMaxHeads);
    return reinterpret_cast<Normaliser*>(p.partials + all * kHeadDim);
  }

  /// Whether this CTA is the last of `parts` to arrive.
  TW_DEVICE bool ArriveLast(u32 parts) const {
    __syncthreads();  // all of this CTA's partial results are written
    if (threadIdx.x == 0) {
      u32* counter = p.arrivals + blockIdx.x;
      *arrived = Arrive(counter);
      if (*arrived + 1 == parts) *counter = 0;  // for the next launch
    }
    __syncthreads();  // thread 0 knows
    return *arrived + 1 == parts;
  }

  /// Merges the partial results of all parts of the row, eight loads at a time under way.
  TW_DEVICE void Merge(int parts) const {
    constexpr int kAtOnce = 8;
    for (int u = static_cast<int>(threadIdx.x); u < heads * kUnits; u += kThreads) {
      const int head = u / kUnits;
      Normaliser all{MinusInfinity(), 0.0f};
      float total[4] = {};
      TW_NO_UNROLL
      for (int first = 0; first < parts; first += kAtOnce) {
        Normaliser norm[kAtOnce];
        float part[kAtOnce][4];
        float top = all.max;
        TW_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          // Those behind the last are loaded again, and weigh nothing.
          const bool exists = first + i < parts;
          const i64 partial = PartialOf(exists ? first + i : parts - 1, head);
          norm[i] = PartialNorms()[partial];
          if (!exists) norm[i].max = MinusInfinity();
          LoadPack<Type::kF32, 4>(p.partials, partial * kHeadDim + u % kUnits * 4, part[i]);
        }
        TW_UNROLL
        for (int i = 0; i < kAtOnce; ++i) top = LargerOf(top, norm[i].max);
        const float base = top == MinusInfinity() ? 0.0f : top;
        const float keep = Exp2(all.max - base);
        all = {top, all.sum * keep};
        TW_UNROLL
        for (int i = 0; i < 4; ++i) total[i] *= keep;
        TW_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const float take = Exp2(norm[i].max - base);
          all.sum = Fma(norm[i].sum, take, all.sum);
          TW_UNROLL
          for (int e = 0; e < 4; ++e) total[e] = Fma(part[i][e], take, total[e]);
        }
      }
      StoreScaled(head, u % kUnits, total, all.sum);
    }
  }

  /// Combines the warps' results: into the row's, or one of its parts.
  TW_DEVICE void Finish(int part, int parts) const {
    for (int u = static_cast<int>(threadIdx.x); u < heads * kUnits; u += kThreads) {
      const int head = u / kUnits, unit = u % kUnits;
      float total[4];
      const Normaliser all = Combine(head, unit, total);
      if (parts == 1) {
        StoreScaled(head, unit, total, all.sum);
        continue;
      }
      const i64 partial = PartialOf(part, head);
      StorePack<Type::kF32, 4>(p.partials, partial * kHeadDim + 4 * unit, total);
      if (unit == 0) PartialNorms()[partial] = all;
    }
    if (parts > 1 && ArriveLast(static_cast<u32>(parts))) Merge(parts);
  }

  /// Of a CTA of a cluster: what the barrier in place of `arrived` counts.
  TW_DEVICE int UnitsEach() const { return heads * kUnits / kCluster; }
  TW_DEVICE u32 SentBarrier() const { return SmemAddress(arrived); }
  TW_DEVICE void OpenForCluster() const {
    if (threadIdx.x == 0) {
      MbarrierInit(SentBarrier(), 1);
      FenceBarrierInit();
      MbarrierArriveExpectTx(SentBarrier(), static_cast<u32>(kCluster * UnitsEach()) * (16 + 8));
    }
    ClusterArriveRelaxed();
  }
  /// As Finish, where the parts are of a cluster: each CTA merges as many units of the row's heads.
  TW_DEVICE void FinishInCluster() const {
    const u32 own = ClusterCtaRank();
    const int each = UnitsEach();
    const u32 norms_of_units = parts_of_units + kCluster * kMostUnitsEach * 16;
    for (int u = static_cast<int>(threadIdx.x); u < heads * kUnits; u += kThreads) {
      float total[4];
      const Normaliser all = Combine(u / kUnits, u % kUnits, total);
      const u32 owner = static_cast<u32>(u / each);
      const u32 place = own * kMostUnitsEach + static_cast<u32>(u % each);
      const u32 barrier = ClusterAddress(SentBarrier(), owner);
      SendToCluster16(ClusterAddress(parts_of_units + place * 16, owner), barrier, BitsOf(total[0]),
                      BitsOf(total[1]), BitsOf(total[2]), BitsOf(total[3]));
      SendToCluster8(ClusterAddress(norms_of_units + place * 8, owner), barrier, BitsOf(all.max),
                     BitsOf(all.sum));
    }
    MbarrierWaitCluster(SentBarrier(), 0);
    const u8* sent = shared + (parts_of_units - SmemAddress(shared));
    for (int u = static_cast<int>(threadIdx.x); u < each; u += kThreads) {
      const auto* sums = reinterpret_cast<const U32x4*>(sent) + u;
      const auto* norm_of =
          reinterpret_cast<const Normaliser*>(sent + kCluster * kMostUnitsEach * 16) + u;
      Normaliser all{MinusInfinity(), 0.0f};
      TW_UNROLL
      for (int c = 0; c < kCluster; ++c)
        all.max = LargerOf(all.max, norm_of[c * kMostUnitsEach].max);
      const float base = all.max == MinusInfinity() ? 0.0f : all.max;
      float total[4] = {};
      TW_UNROLL
      for (int c = 0; c < kCluster; ++c) {
        const Normaliser norm = norm_of[c * kMostUnitsEach];
        const float take = Exp2(norm.max - base);
        all.sum = Fma(norm.sum, take, all.sum);
        TW_UNROLL
        for (int i = 0; i < 4; ++i)
          total[i] = Fma(FloatOf(sums[c * kMostUnitsEach].v[i]), take, total[i]);
      }
      const int unit = static_cast<int>(own) * each + u;
      StoreScaled(unit / kUnits, unit % kUnits, total, all.sum);
    }
  }

  TW_DEVICE void Run() {
    if constexpr (kCluster > 1) OpenForCluster();
    View view = ViewOf(-1, -1);
    if constexpr (Spec::kForesees) {
      view = ViewOf(ReadAhead(p.positions + row), ReadAhead(p.slots + row));
      Prefetch(view);
    }
    const int* entry = PageEntry(view.cache, view.share.first + lane % kLines, view.share.limit);
    if constexpr (kCluster > 1) ClusterWait();
    WaitForPrerequisites();
    // All of this is on its way at once, the page as guessed.
    u32 position = LoadOnce4(p.positions + row), slot = LoadOnce4(p.slots + row);
    u32 page = Spec::kForesees ? LoadOnce4(entry) : 0;
    LoadQueries();
    KeepOrder(position, slot, page);
    if (view.position != static_cast<int>(position) || view.slot != static_cast<int>(slot)) {
      view = ViewOf(static_cast<int>(position), static_cast<int>(slot));
      page = LoadOnce4(PageEntry(view.cache, view.share.first + lane % kLines, view.share.limit));
    }
    if (!Exists(view.position, view.slot)) {
      if (blockIdx.y == 0) StoreAll(view.position == -1 ? 0.0f : FloatOf(0x7fffffffu));
      return;
    }
    const Share& share = view.share;
    const int part = static_cast<int>(blockIdx.y);
    if (part >= share.parts) return;
    Compute(view.cache, share,
            LookUp(view.cache, static_cast<int>(page), share.first + lane % kLines, share.limit));
    KeepResult();
    __syncthreads();  // every warp's result is there
    if constexpr (kCluster > 1) {
      FinishInCluster();
    } else {
      Finish(part, share.parts);
    }
  }
};

}  // namespace tw
