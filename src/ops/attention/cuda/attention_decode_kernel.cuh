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
#include "ops/attention/cuda/new_row.cuh"

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
// Where it turns the row itself (NewRow), the row's own key and value are in no cache when it
// starts: the warp whose last tile holds them takes them from there, as every CTA of the row does,
// and one CTA of each key and value head writes them to the caches, which nobody reads there.
//
// Weights are multiplied in two parts of the cache's type, the second the rounding error of the
// first: with one part, the result would differ from the oracle's by the rounding of weights.

namespace tw {

/// The result over some positions: maximum of the scores, sum of the weights relative to it, and
/// four elements of the weighted sum of values.
struct alignas(8) Normaliser {
  float max, sum;
};

/// What a kernel is given.
template <bool kTurns>
struct DecodeParamsOf {
  using Type = AttentionParams;
};
template <>
struct DecodeParamsOf<true> {
  using Type = RopeAttentionParams;
};
template <bool kTurns>
using DecodeParams = typename DecodeParamsOf<kTurns>::Type;
TW_DEVICE const AttentionParams& AttentionOf(const AttentionParams& p) { return p; }
TW_DEVICE const AttentionParams& AttentionOf(const RopeAttentionParams& p) { return p.attention; }

/// Spec: kType (q, caches and out), kHeadDim, kWarps, kStages (of a warp's ring), kCluster (CTAs of
/// a row that are a cluster, 1: none), kForesees (whether caches are prefetched ahead of the wait for
/// earlier kernels), kTurns (whether it turns the row).
template <class Spec>
struct AttentionDecode {
  static constexpr Type kType = Spec::kType;
  static constexpr int kHeadDim = Spec::kHeadDim;
  static constexpr int kMaxHeads = 8;
  static constexpr int kWarps = Spec::kWarps;
  static constexpr int kStages = Spec::kStages;
  static constexpr int kCluster = Spec::kCluster;
  static constexpr bool kTurns = Spec::kTurns;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kLines = 16;            // positions of a warp's tile
  static constexpr int kNew = kTurns ? 1 : 0;  // positions of a row that no cache has
  using Tile = KvTile<kType, kHeadDim, kLines, 32>;
  static constexpr int kChunks = Tile::kChunks;
  static constexpr int kCopies = kLines * kChunks / 32;  // of a lane for one tile
  static constexpr int kSteps = kHeadDim / 16;           // of 16 elements of a head
  static constexpr int kUnits = kHeadDim / 4;            // of a head: four elements
  static constexpr int kWarpBytes = 2 * kStages * Tile::kBytes;
  static constexpr int kUnitsEach = kUnits / kCluster;  // of a head: that a CTA of a cluster merges
  static_assert(kUnits % kCluster == 0, "units of a head are evenly divided");
  static constexpr u32 kPlaces = kMaxHeads * kUnitsEach;  // for what a CTA of a cluster sends
  static constexpr u32 kSentBytes = kCluster == 1 ? 0 : (16 + 8) * kPlaces * kCluster;
  /// Floats of a head in a warp's result: the lanes of a warp meet no bank conflict.
  static constexpr int kResultStride = kHeadDim + 4;
  static_assert(kType == Type::kBF16 || kType == Type::kF16, "16-bit elements");
  static_assert(4 * kMaxHeads * kResultStride <= kWarpBytes, "a warp's result takes its ring");

  using Row = NewRow<kType, kHeadDim, kThreads>;
  using Params = DecodeParams<kTurns>;
  const Params& params;
  const AttentionParams& p;
  u8* shared;         // [kWarps] rings: [kStages] tiles of keys, then of values; then results
  Normaliser* norms;  // shared: [kWarps][kMaxHeads]
  u32* arrived;       // shared
  u32 sent;  // shared: by each CTA of a cluster, [kMaxHeads][kUnitsEach] sums; then their norms
  int row, kv_head, first_head;
  int heads;       // of this CTA
  int most_heads;  // of a CTA
  int lane, warp;
  u32 page_inverse;
  bool aligned;          // 16-byte copies are
  bool whole;            // tiles lie in one piece, too
  u32 q[kSteps][2];      // Q^T as B of mma.sync
  float out[kSteps][4];  // V^T . P^T as D of mma.sync: 16 elements of a head by 8 heads
  float max[2], sum[2];  // of heads 2t and 2t + 1; the sum is of this thread's positions

  TW_DEVICE AttentionDecode(const Params& its_params, u8* smem)
      : params(its_params),
        p(AttentionOf(its_params)),
        shared(smem),
        norms(reinterpret_cast<Normaliser*>(smem + kWarps * kWarpBytes)),
        arrived(reinterpret_cast<u32*>(norms + kWarps * kMaxHeads)),
        sent(SmemAddress(arrived) + 16),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        page_inverse(SequenceCache::PageInverse(p)),
        aligned(Tile::Aligned(p)),
        whole(aligned && (p.pages == nullptr || p.page_size % kLines == 0)) {
    const int group = p.heads / p.kv_heads;
    const int blocks = (group + kMaxHeads - 1) / kMaxHeads;
    const int pair = static_cast<int>(blockIdx.x) / blocks;
    const int block = static_cast<int>(blockIdx.x) - pair * blocks;
    row = pair / p.kv_heads;
    kv_head = pair - row * p.kv_heads;
    first_head = kv_head * group + block * kMaxHeads;
    most_heads = group < kMaxHeads ? group : kMaxHeads;
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
  static constexpr u32 kValues = kStages * Tile::kBytes;  // from the keys of a stage to its values

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

  /// The tiles of a warp: of those that hold what a row sees, every so many from its first on. They
  /// begin at multiples of their size, so pages are whole tiles where they can be.
  struct Share {
    int parts;         // CTAs that the row is dealt to
    SeenRange seen;    // positions
    int first;         // position of the first tile
    int step, rounds;  // positions between tiles, and how many of them the warps with most have
  };
  TW_DEVICE Share ShareOf(int position) const {
    Share share;
    share.seen = SeenBy(position, p.window);
    const int begin = share.seen.first / kLines * kLines;
    const int tiles = (share.seen.limit - begin + kLines - 1) / kLines;
    const int needed = (tiles + kWarps - 1) / kWarps;
    share.parts = kCluster > 1 ? kCluster : needed < p.splits ? needed : p.splits;
    share.first = begin + (static_cast<int>(blockIdx.y) * kWarps + warp) * kLines;
    share.step = share.parts * kWarps * kLines;
    share.rounds = (share.seen.limit - begin + share.step - 1) / share.step;
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

  /// Where the page of a tile is looked up; some other number if there is nothing to look up.
  TW_DEVICE const int* PageEntry(const View& view, int tile) const {
    const bool paged = view.cache.table != nullptr && tile < view.share.seen.limit;
    return paged ? view.cache.table + view.cache.LogicalPage(tile) : p.positions + row;
  }

  /// Starts the way of the first tiles of a guess into L2.
  TW_DEVICE void Prefetch(const View& guess) const {
    const Share& share = guess.share;
    const u8* base = static_cast<const u8*>(lane < kLines ? p.k_cache : p.v_cache);
    if (!whole || !Exists(guess.position, guess.slot)) return;
    TW_NO_UNROLL
    for (int round = 0; round < share.rounds && round < kStages; ++round) {
      const int tile = share.first + round * share.step;
      const int at = tile + lane % kLines;
      i64 place = 0;
      if (guess.cache.FindIn(ReadAhead(PageEntry(guess, tile)), at, place) &&
          at >= share.seen.first && at < share.seen.limit)
        PrefetchToL2(base + 2 * place, 2 * kHeadDim);
    }
  }

  /// Line of the tile whose chunk `lane % kChunks` is the lane's `i`-th.
  static constexpr int kLineStep = 32 / kChunks;
  TW_DEVICE int LineOf(int i) const { return lane / kChunks + i * kLineStep; }

  /// Starts the copies of the tile at position `tile`, whose page, if it has one, is `page`: zeros
  /// for what is not seen, and NaN for keys whose pages do not exist.
  TW_DEVICE void Copy(const View& view, int tile, int page, int stage) const {
    const int chunk = lane % kChunks;
    const SeenRange& seen = view.share.seen;
    i64 place = 0;
    const bool exists = view.cache.FindIn(page, tile, place) || tile >= seen.limit - kNew;
    if (!whole || !exists) {
      CopyLines(view, tile, stage);
      return;
    }
    const i64 first = place + LineOf(0) * view.cache.position_stride;
    const i64 step = 2 * kLineStep * view.cache.position_stride;
    const u8* key = static_cast<const u8*>(p.k_cache) + 2 * first + 16 * chunk;
    const u8* value = static_cast<const u8*>(p.v_cache) + 2 * first + 16 * chunk;
    const u32 to = Keys(stage) + KvOffset(LineOf(0), chunk, kChunks);
    const auto seen_before = static_cast<u32>(tile + LineOf(0) - seen.first);
    TW_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      // KvOffset of the line, which has no bit in common with line 0.
      const u32 at = (to ^ (i * kLineStep % 8 * 16)) + i * kLineStep * kChunks * 16;
      const bool is_seen =
          seen_before + i * kLineStep < static_cast<u32>(seen.limit - kNew - seen.first);
      CpAsync16OrZeros(at, key, is_seen);
      CpAsync16OrZeros(at + kValues, value, is_seen);
      key += step;
      value += step;
    }
  }
  /// The same where nothing is known of pages and addresses: each lane looks up one line.
  TW_DEVICE void CopyLines(const View& view, int tile, int stage) const {
    constexpr i64 kUnseen = -1, kMissing = -2;
    const int chunk = lane % kChunks;
    const int at = tile + lane % kLines;
    i64 mine = kUnseen;
    if (at >= view.share.seen.first && at < view.share.seen.limit - kNew &&
        !view.cache.Find(at, mine))
      mine = kMissing;
    TW_NO_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const u32 low = FromLane(static_cast<u32>(mine), LineOf(i));
      const u32 high = FromLane(static_cast<u32>(mine >> 32), LineOf(i));
      const i64 place = static_cast<i64>(static_cast<u64>(high) << 32 | low);
      const u32 to = KvOffset(LineOf(i), chunk, kChunks);
      TW_UNROLL
      for (int part = 0; part < 2; ++part) {
        const u8* from = static_cast<const u8*>(part == 0 ? p.k_cache : p.v_cache) + 16 * chunk;
        const u32 smem = Keys(stage) + part * kValues + to;
        if (place < 0) {
          const u32 word = part == 0 && place == kMissing ? ~0u : 0u;
          StoreShared16(smem, word, word, word, word);
        } else if (aligned) {
          CpAsync16(smem, from + 2 * place);
        } else {
          Tile::CopyElements(smem, from + 2 * place);
        }
      }
    }
  }

  /// s = K . Q^T, as D of mma.sync: 16 positions by 8 heads.
  TW_DEVICE void Score(float (&s)[4], u32 keys) const {
    const u32 from = keys + KvOffset(lane / 8 % 2 * 8 + lane % 8, lane / 16, kChunks);
    float odd[4];
    TW_UNROLL
    for (int i = 0; i < 4; ++i) s[i] = odd[i] = 0.0f;
    TW_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      u32 key[4];
      LdMatrixX4(key, from ^ (step * 32));  // two chunks further, which are no bits of lane / 16
      // Two chains of sums: one would be a chain of latencies.
      Mma16816<kType>(step % 2 == 0 ? s : odd, key, q[step][0], q[step][1]);
    }
    TW_UNROLL
    for (int i = 0; i < 4; ++i) s[i] += odd[i];
  }

  /// Scores of the tile at position `tile` become weights relative to the maximum so far.
  TW_DEVICE void Weigh(float (&s)[4], int tile, const SeenRange& seen) {
    CapScores(p, s);
    const float scale = ExponentScale(p);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      float top = MinusInfinity();
      TW_UNROLL
      for (int i = 0; i < 2; ++i) {
        float& score = s[2 * i + h];
        const int at = tile + 8 * i + lane / 4;
        score = at >= seen.first && at < seen.limit ? score * scale : MinusInfinity();
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
    const u32 from = values + KvOffset(lane / 16 * 8 + lane % 8, lane / 8 % 2, kChunks);
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
      LdMatrixX4Trans(value, from ^ (step * 32));
      TW_UNROLL
      for (int part = 0; part < 2; ++part)
        Mma16816<kType>(out[step], value, weights[part][0], weights[part][1]);
    }
  }

  /// Turns the row, of which `fresh` has loaded what there is, and takes its queries. `page`: of
  /// the row's position, whose key and value the second of two warps writes to the caches: the
  /// first has them in its last tile.
  TW_DEVICE void TurnRow(const View& view, const Row& fresh, int page) {
    i64 place = 0;
    const bool placed = view.cache.FindIn(page, view.position, place);
    fresh.Put(placed);
    __syncthreads();  // the whole row is turned
    fresh.Queries(q);
    const int last = view.share.first - warp * kLines + (view.share.rounds - 1) * view.share.step;
    const int owner = (view.position - last) / kLines;  // here, if it is one of the CTA's warps
    const bool here = view.position >= last && owner < kWarps;
    if (placed && here && first_head == kv_head * (p.heads / p.kv_heads) &&
        warp == (owner + 1) % kWarps)
      fresh.Store(place, aligned);
  }
  /// The row's key and value into the tile that holds its position: by the lanes that copied zeros
  /// there, so that their copies are over.
  TW_DEVICE void PutNew(int position, const Row& fresh, int stage) const {
    const int line = position % kLines, chunk = lane % kChunks;
    if (lane / kChunks != line % kLineStep) return;
    TW_UNROLL
    for (int part = 0; part < 2; ++part) {
      const U32x4 words = fresh.Chunk(Row::kKeyLine + part, chunk);
      StoreShared16(Keys(stage) + part * kValues + KvOffset(line, chunk, kChunks), words.v[0],
                    words.v[1], words.v[2], words.v[3]);
    }
  }

  /// Rounds `first` to `end` - 1. Those from -kStages to -1 only start copies (kStarts); in those
  /// from 0 on the tile is attended to (kAttends) whose copies were started kStages rounds before.
  /// `page`: of the tile that is copied next. `fresh`: where the row is turned.
  template <bool kStarts, bool kAttends>
  TW_DEVICE void Rounds(const View& view, int first, int end, int& page, const Row* fresh) {
    const Share& share = view.share;
    int stage = 0;  // of both first rounds
    TW_NO_UNROLL
    for (int round = first; round < end; ++round) {
      const int tile = share.first + round * share.step;
      const int copied = tile + kStages * share.step;
      // Looked up a round ahead: copies would wait for it.
      const int next_page = *PageEntry(view, copied + share.step);
      if (kAttends && (!kStarts || round >= 0)) {
        float s[4];
        CpAsyncWait<kStages - 1>();
        if constexpr (kTurns) {
          if (view.position - tile < kLines && view.position >= tile)
            PutNew(view.position, *fresh, stage);
        }
        __syncwarp();  // the tile of all lanes is there
        Score(s, Keys(stage));
        Weigh(s, tile, share.seen);
        AddValues(s, Keys(stage) + kValues);
        __syncwarp();  // all lanes have read the stage
      }
      if (round + kStages < share.rounds) Copy(view, copied, page, stage);
      CpAsyncCommit();  // a group for each round, empty or not
      page = next_page;
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
  }

  /// All warps make the same number of rounds. `page`: of the first tile; `fresh`, `new_page`:
  /// where the row is turned.
  TW_DEVICE void Compute(const View& view, int page, const Row* fresh, int new_page) {
    if constexpr (kTurns) {
      // Two loops, though copies are large code: in one, what turns the row would be in registers
      // to the end (in all 175 with heads of 128 elements in place of 145), and took 0.4 us a
      // round.
      Rounds<true, false>(view, -kStages, 0, page, fresh);
      TurnRow(view, *fresh, new_page);
      Rounds<false, true>(view, 0, view.share.rounds, page, fresh);
    } else {
      // The first rounds only start copies: they are large code, and there once.
      Rounds<true, true>(view, -kStages, view.share.rounds, page, fresh);
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
    return (static_cast<i64>(blockIdx.x) * p.splits + part) * most_heads + head;
  }
  /// Of each partial result, behind all the sums.
  TW_DEVICE Normaliser* PartialNorms() const {
    const i64 all = static_cast<i64>(gridDim.x) * p.splits * most_heads;
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

  /// Of a CTA of a cluster: the barrier, in place of `arrived`, that counts what it is sent.
  TW_DEVICE u32 SentBarrier() const { return SmemAddress(arrived); }
  TW_DEVICE void OpenForCluster() const {
    if (threadIdx.x == 0) {
      MbarrierInit(SentBarrier(), 1);
      FenceBarrierInit();
      MbarrierArriveExpectTx(SentBarrier(),
                             static_cast<u32>(kCluster * heads * kUnitsEach) * (16 + 8));
    }
    ClusterArriveRelaxed();
  }
  /// As Finish, where the parts are of a cluster: each CTA merges some units of every head.
  TW_DEVICE void FinishInCluster() const {
    const u32 own = ClusterCtaRank();
    const u32 sent_norms = sent + kCluster * kPlaces * 16;
    for (int u = static_cast<int>(threadIdx.x); u < heads * kUnits; u += kThreads) {
      const int head = u / kUnits, unit = u % kUnits;
      float total[4];
      const Normaliser all = Combine(head, unit, total);
      const auto owner = static_cast<u32>(unit / kUnitsEach);
      const u32 place = own * kPlaces + static_cast<u32>(head * kUnitsEach + unit % kUnitsEach);
      const u32 barrier = ClusterAddress(SentBarrier(), owner);
      SendToCluster16(ClusterAddress(sent + place * 16, owner), barrier, BitsOf(total[0]),
                      BitsOf(total[1]), BitsOf(total[2]), BitsOf(total[3]));
      SendToCluster8(ClusterAddress(sent_norms + place * 8, owner), barrier, BitsOf(all.max),
                     BitsOf(all.sum));
    }
    MbarrierWaitCluster(SentBarrier(), 0);
    const u8* here = shared + (sent - SmemAddress(shared));
    for (int u = static_cast<int>(threadIdx.x); u < heads * kUnitsEach; u += kThreads) {
      const auto* sums = reinterpret_cast<const U32x4*>(here) + u;
      const auto* norm_of = reinterpret_cast<const Normaliser*>(here + kCluster * kPlaces * 16) + u;
      Normaliser all{MinusInfinity(), 0.0f};
      TW_UNROLL
      for (u32 c = 0; c < kCluster; ++c) all.max = LargerOf(all.max, norm_of[c * kPlaces].max);
      const float base = all.max == MinusInfinity() ? 0.0f : all.max;
      float total[4] = {};
      TW_UNROLL
      for (u32 c = 0; c < kCluster; ++c) {
        const Normaliser norm = norm_of[c * kPlaces];
        const float take = Exp2(norm.max - base);
        all.sum = Fma(norm.sum, take, all.sum);
        TW_UNROLL
        for (int i = 0; i < 4; ++i) total[i] = Fma(FloatOf(sums[c * kPlaces].v[i]), take, total[i]);
      }
      StoreScaled(u / kUnitsEach, static_cast<int>(own) * kUnitsEach + u % kUnitsEach, total,
                  all.sum);
    }
  }

  TW_DEVICE void Run() {
    if constexpr (kTurns) {
      Row fresh(params, shared + (sent - SmemAddress(shared)) + kSentBytes);
      RunWith(&fresh);
    } else {
      RunWith(nullptr);
    }
  }
  TW_DEVICE void RunWith(Row* fresh) {
    if constexpr (kCluster > 1) OpenForCluster();
    View view = ViewOf(-1, -1);
    if constexpr (Spec::kForesees && kTurns) fresh->LoadFrequency();
    if constexpr (Spec::kForesees) {
      view = ViewOf(ReadAhead(p.positions + row), ReadAhead(p.slots + row));
      Prefetch(view);
      if constexpr (kTurns) fresh->SetAngle(view.position);
    }
    const int* entry = PageEntry(view, view.share.first);
    const int* new_entry = kTurns ? PageEntry(view, view.share.seen.limit - 1) : entry;
    if constexpr (kCluster > 1) ClusterWait();
    WaitForPrerequisites();
    // All of this is on its way at once, the pages as guessed.
    u32 position = LoadOnce4(p.positions + row), slot = LoadOnce4(p.slots + row);
    u32 page = Spec::kForesees ? LoadOnce4(entry) : 0;
    u32 new_page = kTurns && Spec::kForesees ? LoadOnce4(new_entry) : 0;
    if constexpr (kTurns) {
      if constexpr (!Spec::kForesees) fresh->LoadFrequency();
      fresh->Load(row, kv_head, first_head, heads);
    } else {
      LoadQueries();
    }
    KeepOrder(position, slot, page);
    if (view.position != static_cast<int>(position) || view.slot != static_cast<int>(slot)) {
      view = ViewOf(static_cast<int>(position), static_cast<int>(slot));
      page = LoadOnce4(PageEntry(view, view.share.first));
      if constexpr (kTurns) {
        new_page = LoadOnce4(PageEntry(view, view.share.seen.limit - 1));
        fresh->SetAngle(view.position);
      }
    }
    if (!Exists(view.position, view.slot)) {
      if (blockIdx.y == 0) StoreAll(view.position == -1 ? 0.0f : FloatOf(0x7fffffffu));
      return;
    }
    const int part = static_cast<int>(blockIdx.y);
    if (part >= view.share.parts) return;
    Compute(view, static_cast<int>(page), fresh, static_cast<int>(new_page));
    LaunchDependents();
    KeepResult();
    __syncthreads();  // every warp's result is there
    if constexpr (kCluster > 1) {
      FinishInCluster();
    } else {
      Finish(part, view.share.parts);
    }
  }
};

}  // namespace tw
