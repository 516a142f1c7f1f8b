#pragma once

#include "device/cuda/kernels/ldmatrix.cuh"
#include "device/cuda/kernels/mma.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/attention/cuda/kv_tile.cuh"

// Attention of many rows on tensor cores (mma.sync, sm_80 and newer), after Dao 2023,
// FlashAttention-2. The query heads of one key and value head and some adjacent rows make the
// query vectors of a CTA, 16 for each warp; scores and weights stay in registers. The rows of a
// tile may be of several sequences: it walks over the positions of one after the other, and what a
// row does not see weighs exactly zero.
//
// Weights, and queries of f32, are multiplied in two parts of the cache's type, the second the
// rounding error of the first: with one part, the result would differ from the oracle's by the
// rounding of weights to 8 bits.

namespace tw {

/// Spec: kTypeQ (q and out), kTypeKv, kHeadDim, kPositions (of a tile of keys), kWarps.
template <class Spec>
struct AttentionMma {
  static constexpr Type kTypeQ = Spec::kTypeQ;
  static constexpr Type kTypeKv = Spec::kTypeKv;
  static constexpr int kHeadDim = Spec::kHeadDim;
  static constexpr int kPositions = Spec::kPositions;
  static constexpr int kThreads = 32 * Spec::kWarps;
  static constexpr int kVectors = 16 * Spec::kWarps;
  static constexpr int kQParts = kTypeQ == Type::kF32 ? 2 : 1;
  static constexpr int kSteps = kHeadDim / 16;  // of 16 elements of a head
  // Queries in two parts are kept in shared memory, for want of registers.
  static constexpr int kStored = kQParts == 2 ? 2 : 0;
  static constexpr int kStoredBytes = kStored * kSteps * kThreads * 16;
  static constexpr int kBlocks = kPositions / 8;  // of 8 positions
  static constexpr int kPairs = kPositions / 16;  // of 16 positions
  using Tile = KvTile<kTypeKv, kHeadDim, kPositions, kThreads>;
  static_assert(kTypeQ == kTypeKv || kTypeQ == Type::kF32, "q of the cache's type, or f32");

  /// What a row of the tile sees; limit 0: it is padding, -1: it does not exist.
  struct Row {
    int first, limit, slot;
  };

  const AttentionParams& p;
  u32 keys, values;     // shared: [kPositions] lines each
  Row* tile_rows;       // shared: [kVectors]
  int group;            // query heads of a key and value head
  int first_row, rows;  // of the tile
  int kv_head;
  int lane, warp;
  // A thread has two vectors, lane / 4 and lane / 4 + 8 of its warp: their rows in the tile.
  int row_of[2];
  u32 q[kQParts == 1 ? kSteps : 1][4];
  u32 stored;             // shared: [kStored][kSteps][kThreads] 16 bytes, the parts of q
  float out[8 * kSteps];  // [head_dim / 8] blocks of 8 elements, as D of mma.sync
  float max[2], sum[2];   // of this thread's columns

  TW_DEVICE AttentionMma(const AttentionParams& params, u8* smem)
      : p(params),
        keys(SmemAddress(smem)),
        values(SmemAddress(smem) + Tile::kBytes),
        tile_rows(reinterpret_cast<Row*>(smem + 2 * Tile::kBytes + kStoredBytes)),
        group(p.heads / p.kv_heads),
        kv_head(static_cast<int>(blockIdx.y)),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        stored(SmemAddress(smem) + 2 * Tile::kBytes) {
    const int rows_each = kVectors / group;
    // Later rows of a prompt see more: they start first, so that no long tile is left for the end.
    first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * rows_each;
    rows = p.rows - first_row < rows_each ? p.rows - first_row : rows_each;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      row_of[h] = (16 * warp + lane / 4 + 8 * h) / group;
      max[h] = MinusInfinity();
      sum[h] = 0.0f;
    }
    TW_UNROLL
    for (int i = 0; i < 8 * kSteps; ++i) out[i] = 0.0f;
  }

  TW_DEVICE int HeadOf(int h) const {
    return kv_head * group + 16 * warp + lane / 4 + 8 * h - row_of[h] * group;
  }

  /// The rows of the tile, into shared memory.
  TW_DEVICE void FindRows() const {
    const int r = static_cast<int>(threadIdx.x);
    if (r < rows) {
      const int position = p.positions[first_row + r];
      const int slot = position >= 0 ? p.slots[first_row + r] : 0;
      Row row{0, position == -1 ? 0 : -1, slot};
      if (position >= 0 && position < p.context && slot >= 0 && slot < p.sequences) {
        const SeenRange seen = SeenBy(position, p.window);
        row.first = seen.first;
        row.limit = seen.limit;
      }
      tile_rows[r] = row;
    }
    __syncthreads();  // all rows are there
  }

  /// Two adjacent elements of q; zeros for a vector that the tile does not have.
  TW_DEVICE void LoadPair(int h, int element, float (&pair)[2]) const {
    pair[0] = pair[1] = 0.0f;
    if (row_of[h] >= rows) return;
    const i64 at = (first_row + row_of[h]) * p.q_row + HeadOf(h) * p.q_head + element;
    pair[0] = LoadElement<kTypeQ>(p.q, at);
    pair[1] = LoadElement<kTypeQ>(p.q, at + 1);
  }
  /// Both rounded to the cache's type; what is left of them stays.
  static TW_DEVICE u32 TakePart(float (&pair)[2]) {
    const u32 word = PackPairOf<kTypeKv>(pair[0], pair[1]);
    pair[0] -= LowToF32<kTypeKv>(word);
    pair[1] -= HighToF32<kTypeKv>(word);
    return word;
  }
  TW_DEVICE u32 StoredAt(int part, int step) const {
    const int place = (part * kSteps + step) * kThreads + static_cast<int>(threadIdx.x);
    return stored + static_cast<u32>(place) * 16;
  }
  TW_DEVICE void LoadQueries() {
    TW_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      u32 parts[kQParts][4];
      TW_UNROLL
      for (int i = 0; i < 4; ++i) {
        float pair[2];
        LoadPair(i % 2, 16 * step + 8 * (i / 2) + lane % 4 * 2, pair);
        TW_UNROLL
        for (int part = 0; part < kQParts; ++part) parts[part][i] = TakePart(pair);
        if constexpr (kQParts == 1) q[step][i] = parts[0][i];
      }
      // Each thread reads only what it wrote.
      TW_UNROLL
      for (int part = 0; part < kStored; ++part) {
        const u32(&word)[4] = parts[part];
        StoreShared16(StoredAt(part, step), word[0], word[1], word[2], word[3]);
      }
    }
  }
  TW_DEVICE void TakeQuery(u32 (&query)[4], int part, int step) const {
    if constexpr (kQParts == 2) {
      LoadShared16(query, StoredAt(part, step));
    } else {
      TW_UNROLL
      for (int i = 0; i < 4; ++i) query[i] = q[step][i];
    }
  }

  /// s = q . k, blocks of 8 positions as D of mma.sync.
  TW_DEVICE void Score(float (&s)[4 * kBlocks]) const {
    TW_UNROLL
    for (int i = 0; i < 4 * kBlocks; ++i) s[i] = 0.0f;
    TW_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      u32 query[kQParts][4];
      TW_UNROLL
      for (int part = 0; part < kQParts; ++part) TakeQuery(query[part], part, step);
      TW_UNROLL
      for (int j = 0; j < kPairs; ++j) {
        // Matrices 0 and 1 are the two halves of the step for eight positions, 2 and 3 for the
        // next eight.
        u32 key[4];
        const int line = 16 * j + lane / 16 * 8 + lane % 8;
        LdMatrixX4(key, keys + KvOffset(line, 2 * step + lane / 8 % 2, Tile::kChunks));
        TW_UNROLL
        for (int part = 0; part < kQParts; ++part) {
          Mma16816<kTypeKv>(&s[8 * j], query[part], key[0], key[1]);
          Mma16816<kTypeKv>(&s[8 * j + 4], query[part], key[2], key[3]);
        }
      }
    }
  }

  /// Scores become weights relative to the maximum so far; `seen`: by this thread's two rows.
  TW_DEVICE void Weigh(float (&s)[4 * kBlocks], int from, const SeenRange (&seen)[2]) {
    CapScores(p, s);
    const float scale = ExponentScale(p);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const bool whole = from >= seen[h].first && from + kPositions <= seen[h].limit;
      float top = MinusInfinity();
      TW_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        TW_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int position = from + 8 * b + lane % 4 * 2 + i;
          float& score = s[4 * b + 2 * h + i];
          score *= scale;
          if (!whole && (position < seen[h].first || position >= seen[h].limit))
            score = MinusInfinity();
          top = LargerOf(top, score);
        }
      }
      // The four threads of a row.
      top = LargerOf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = LargerOf(top, __shfl_xor_sync(kAllLanes, top, 2));
      const float after = LargerOf(max[h], top);
      // A row that has seen nothing yet has weights of zero, not of exp(inf - inf).
      const float base = after == MinusInfinity() ? 0.0f : after;
      const float shrink = Exp2(max[h] - base);
      max[h] = after;
      float total = 0.0f;
      TW_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        TW_UNROLL
        for (int i = 0; i < 2; ++i) {
          float& weight = s[4 * b + 2 * h + i];
          weight = Exp2(weight - base);
          total += weight;
        }
      }
      sum[h] = Fma(sum[h], shrink, total);
      TW_UNROLL
      for (int b = 0; b < kHeadDim / 8; ++b) {
        out[4 * b + 2 * h] *= shrink;
        out[4 * b + 2 * h + 1] *= shrink;
      }
    }
  }

  /// out += weights . v
  TW_DEVICE void AddValues(float (&s)[4 * kBlocks]) {
    TW_UNROLL
    for (int j = 0; j < kPairs; ++j) {
      // Two blocks of D are one step of A.
      u32 weights[2][4];
      TW_UNROLL
      for (int i = 0; i < 4; ++i) {
        float pair[2] = {s[8 * j + 2 * i], s[8 * j + 2 * i + 1]};
        weights[0][i] = TakePart(pair);
        weights[1][i] = TakePart(pair);
      }
      TW_UNROLL
      for (int d = 0; d < kSteps; ++d) {
        u32 value[4];
        const int line = 16 * j + lane / 8 % 2 * 8 + lane % 8;
        LdMatrixX4Trans(value, values + KvOffset(line, 2 * d + lane / 16, Tile::kChunks));
        TW_UNROLL
        for (int part = 0; part < 2; ++part) {
          Mma16816<kTypeKv>(&out[8 * d], weights[part], value[0], value[1]);
          Mma16816<kTypeKv>(&out[8 * d + 4], weights[part], value[2], value[3]);
        }
      }
    }
  }

  /// Rows `begin` to `end` - 1 of the tile, all of one sequence; `run`: what they see together.
  TW_DEVICE void Attend(int begin, int end, const Row& run) {
    const SequenceCache cache(p, run.slot, kv_head);
    const bool aligned = Tile::Aligned(p);
    SeenRange seen[2];
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const bool runs = row_of[h] >= begin && row_of[h] < end;
      seen[h] = {runs ? tile_rows[row_of[h]].first : 0, runs ? tile_rows[row_of[h]].limit : 0};
    }
    const int start = run.first / kPositions * kPositions;
    const SeenRange all{run.first, run.limit};
    // The first round only starts copies: they are large code, and there once.
    TW_NO_UNROLL
    for (int from = start - kPositions; from < run.limit; from += kPositions) {
      const int next = from + kPositions;
      const bool computes = from >= start;
      float s[4 * kBlocks];
      if (computes) {
        CpAsyncWait<1>();
        __syncthreads();  // the keys are there
        Score(s);
        __syncthreads();  // the keys are read
      }
      if (next < run.limit) Tile::template Copy<true>(keys, p.k_cache, cache, next, all, aligned);
      CpAsyncCommit();
      if (computes) {
        Weigh(s, from, seen);
        CpAsyncWait<1>();
        __syncthreads();  // the values are there
        AddValues(s);
        __syncthreads();  // the values are read
      }
      if (next < run.limit)
        Tile::template Copy<false>(values, p.v_cache, cache, next, all, aligned);
      CpAsyncCommit();
    }
  }

  TW_DEVICE void StorePair(i64 at, float low, float high, bool wide) const {
    if constexpr (kTypeQ != Type::kF32) {
      if (wide) {
        *reinterpret_cast<u32*>(static_cast<u16*>(p.out) + at) = PackPairOf<kTypeQ>(low, high);
        return;
      }
    }
    StoreElement<kTypeQ>(p.out, at, low);
    StoreElement<kTypeQ>(p.out, at + 1, high);
  }
  TW_DEVICE void Store() {
    const bool wide = reinterpret_cast<u64>(p.out) % 4 == 0 && p.out_row % 2 == 0;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(kAllLanes, sum[h], 1);
      sum[h] += __shfl_xor_sync(kAllLanes, sum[h], 2);
      if (row_of[h] >= rows) continue;
      const int limit = tile_rows[row_of[h]].limit;
      const float scale = 1.0f / sum[h];
      const float other = limit == 0 ? 0.0f : FloatOf(0x7fffffffu);
      const i64 at = (first_row + row_of[h]) * p.out_row + HeadOf(h) * kHeadDim + lane % 4 * 2;
      TW_UNROLL
      for (int b = 0; b < kHeadDim / 8; ++b) {
        const float low = limit > 0 ? out[4 * b + 2 * h] * scale : other;
        const float high = limit > 0 ? out[4 * b + 2 * h + 1] * scale : other;
        StorePair(at + 8 * b, low, high, wide);
      }
    }
  }

  TW_DEVICE void Run() {
    FindRows();
    LoadQueries();
    int row = 0;
    while (row < rows) {
      const int begin = row;
      Row run = tile_rows[row++];
      if (run.limit <= 0) continue;
      // What the rows of a run see has no gap: what nobody sees may not exist, or be NaN.
      for (; row < rows; ++row) {
        const Row next = tile_rows[row];
        if (next.limit <= 0 || next.slot != run.slot || next.first > run.limit ||
            next.limit < run.first)
          break;
        run.first = next.first < run.first ? next.first : run.first;
        run.limit = next.limit > run.limit ? next.limit : run.limit;
      }
      Attend(begin, row, run);
    }
    Store();
  }
};

}  // namespace tw
