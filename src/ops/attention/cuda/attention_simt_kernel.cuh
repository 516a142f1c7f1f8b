#pragma once

#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/attention/cuda/kv_tile.cuh"
#include "tilewright/cuda/attention_simt_params.h"

// Attention for heads of any size up to 256, in f32 on the plain units: a CTA computes one
// row's query heads of one key and value head. Positions form tiles of 32 that lie at multiples of
// it, dealt to the warps in turn; a warp has an online softmax of its own (Milakov and Gimelshein
// 2018), and all of them are added up at the end, in ascending order. What a warp does depends on
// the row alone, so a row has its bits in every batch.
//
// Nothing depends on the size of a head but two loops. For scores a lane has a position, whose
// elements it reads one 16-byte chunk after the other: no sum crosses lanes. For values a lane has
// a chunk, and 32 / chunks positions of a tile are read at a time. The last chunk of a head that is
// no multiple of 8 is filled up with zeros, and caches of such heads are read by single elements.

namespace tw {

using tilewright::cuda::AttentionSimtParams;

/// Spec: kTypeQ (q and out), kTypeKv, kMaxHeads (of a CTA), kWarps.
template <class Spec>
struct AttentionSimt {
  static constexpr Type kTypeQ = Spec::kTypeQ;
  static constexpr Type kTypeKv = Spec::kTypeKv;
  static constexpr int kHeads = Spec::kMaxHeads;
  static constexpr int kWarps = Spec::kWarps;
  static constexpr int kTile = 32;  // positions: a lane has one
  static constexpr int kPack = 8;   // elements of a chunk
  static constexpr int kThreads = 32 * kWarps;
  static_assert(kHeads % 4 == 0, "weights of a position are read by 16 bytes");

  const AttentionParams& p;
  const float* sinks;  // of all heads, or null
  int head_dim, chunks;
  int row, kv_head, first_head;
  int heads;  // of this CTA

  // Shared.
  float* q;         // [kHeads][chunks][kPack], scaled; zeros behind a head and behind the last one
  i64* places;      // [kWarps][kTile]: offset of a position in the caches; -1: not to be read
  float* weights;   // [kWarps][kTile][kHeads]
  float* partials;  // [kWarps][kHeads][32][kPack]
  float* maxima;    // [kWarps][kHeads]
  float* sums;      // [kWarps][kHeads]

  TW_DEVICE AttentionSimt(const AttentionSimtParams& params, u8* smem)
      : p(params.attention),
        sinks(params.sinks),
        head_dim(params.head_dim),
        chunks((params.head_dim + kPack - 1) / kPack) {
    const int group = p.heads / p.kv_heads;
    const int blocks = (group + kHeads - 1) / kHeads;
    const int pair = static_cast<int>(blockIdx.x) / blocks;
    const int block = static_cast<int>(blockIdx.x) % blocks;
    row = pair / p.kv_heads;
    kv_head = pair % p.kv_heads;
    first_head = kv_head * group + block * kHeads;
    const int left = group - block * kHeads;
    heads = left < kHeads ? left : kHeads;
    places = reinterpret_cast<i64*>(smem);
    float* at = reinterpret_cast<float*>(places + kWarps * kTile);
    q = at, at += kHeads * chunks * kPack;
    weights = at, at += kWarps * kTile * kHeads;
    partials = at, at += kWarps * kHeads * 32 * kPack;
    maxima = at, at += kWarps * kHeads;
    sums = at;
  }

  static TW_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }
  static TW_DEVICE int Lane() { return Thread() % 32; }
  static TW_DEVICE int Warp() { return Thread() / 32; }

  /// What a warp has summed up of each head: the same maximum and decay in every lane, the sum of
  /// weights of a lane's positions, and the values of its chunk and positions.
  struct State {
    float max[kHeads], sum[kHeads], out[kHeads][kPack];
  };

  TW_DEVICE void LoadQueries() const {
    const float scale = QueryScale(p);
    const int padded = chunks * kPack;
    for (int i = Thread(); i < kHeads * padded; i += kThreads) {
      const int head = i / padded, element = i - head * padded;
      const i64 from = row * p.q_row + (first_head + head) * p.q_head + element;
      const bool exists = head < heads && element < head_dim;
      q[i] = exists ? LoadElement<kTypeQ>(p.q, from) * scale : 0.0f;
    }
  }

  /// Elements from `first` on of the head at `place`.
  template <bool kAligned>
  TW_DEVICE void LoadChunk(const void* cache, i64 place, int first, float (&out)[kPack]) const {
    if constexpr (kAligned) {
      LoadPack<kTypeKv, kPack>(cache, place + first, out);
    } else {
      TW_UNROLL
      for (int i = 0; i < kPack; ++i)
        out[i] = first + i < head_dim ? LoadElement<kTypeKv>(cache, place + first + i) : 0.0f;
    }
  }

  /// scores = q . k of the position at `place`.
  template <bool kAligned>
  TW_DEVICE void Score(i64 place, float (&scores)[kHeads]) const {
    constexpr int kAtOnce = kAligned ? 4 : 1;  // chunks on their way
    TW_UNROLL
    for (int h = 0; h < kHeads; ++h) scores[h] = 0.0f;
    TW_NO_UNROLL
    for (int c0 = 0; c0 < chunks; c0 += kAtOnce) {
      float key[kAtOnce][kPack];
      TW_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        if (c0 + j < chunks) LoadChunk<kAligned>(p.k_cache, place, (c0 + j) * kPack, key[j]);
      }
      TW_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        if (c0 + j >= chunks) break;
        TW_UNROLL
        for (int h = 0; h < kHeads; ++h) {
          if (h >= heads) break;
          float x[kPack];
          LoadPack<Type::kF32, kPack>(q, (h * chunks + c0 + j) * kPack, x);
          TW_UNROLL
          for (int e = 0; e < kPack; ++e) scores[h] = Fma(x[e], key[j][e], scores[h]);
        }
      }
    }
  }

  /// Scores of a tile, one of each lane, become weights relative to the maximum so far.
  TW_DEVICE void Weigh(const float (&scores)[kHeads], State& state) const {
    float* own = weights + (Warp() * kTile + Lane()) * kHeads;
    TW_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      if (h >= heads) break;
      float top = scores[h];
      TW_UNROLL
      for (int step = 16; step > 0; step /= 2)
        top = LargerOf(top, __shfl_xor_sync(kAllLanes, top, step));
      const float after = LargerOf(state.max[h], top);
      // Nothing is seen yet: any number will do for what all exponents are relative to.
      const float base = after == MinusInfinity() ? 0.0f : after;
      const float decay = Exp2(state.max[h] - base);
      const float weight = Exp2(scores[h] - base);
      own[h] = weight;
      state.max[h] = after;
      state.sum[h] = Fma(state.sum[h], decay, weight);
      TW_UNROLL
      for (int e = 0; e < kPack; ++e) state.out[h][e] *= decay;
    }
  }

  /// out += weights * values of the tile.
  template <bool kAligned>
  TW_DEVICE void AddValues(State& state) const {
    constexpr int kAtOnce = kAligned ? 4 : 1;  // positions on their way
    const int groups = 32 / chunks;            // positions at a time
    const int group = Lane() / chunks;
    const int element = (Lane() - group * chunks) * kPack;
    if (group >= groups) return;
    const i64* place = places + Warp() * kTile;
    const float* weight = weights + Warp() * kTile * kHeads;
    TW_NO_UNROLL
    for (int first = group; first < kTile; first += kAtOnce * groups) {
      float value[kAtOnce][kPack];
      TW_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int position = first + j * groups;
        const i64 at = position < kTile ? place[position] : -1;
        TW_UNROLL
        for (int e = 0; e < kPack; ++e) value[j][e] = 0.0f;
        if (at >= 0) LoadChunk<kAligned>(p.v_cache, at, element, value[j]);
      }
      TW_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int position = first + j * groups;
        if (position >= kTile) break;
        float w[kHeads];
        LoadPack<Type::kF32, kHeads>(weight, position * kHeads, w);
        TW_UNROLL
        for (int h = 0; h < kHeads; ++h) {
          if (h >= heads) break;
          TW_UNROLL
          for (int e = 0; e < kPack; ++e) state.out[h][e] = Fma(w[h], value[j][e], state.out[h][e]);
        }
      }
    }
  }

  /// All tiles of this warp. Warps without a tile in a round compute one that nobody sees: all of
  /// them have the same number of rounds.
  template <bool kAligned>
  TW_DEVICE void Compute(const SequenceCache& cache, const SeenRange& seen, State& state) const {
    constexpr int kRound = kWarps * kTile;
    TW_NO_UNROLL
    for (int from = seen.first / kRound * kRound; from < seen.limit; from += kRound) {
      const int position = from + Warp() * kTile + Lane();
      float scores[kHeads];
      TW_UNROLL
      for (int h = 0; h < kHeads; ++h) scores[h] = MinusInfinity();
      i64 place = -1;
      if (position >= seen.first && position < seen.limit) {
        if (cache.Find(position, place)) {
          Score<kAligned>(place, scores);
          TW_UNROLL
          for (int h = 0; h < kHeads; ++h) scores[h] = ExponentOf(p, scores[h]);
        } else {
          place = -1;
          TW_UNROLL
          for (int h = 0; h < kHeads; ++h) scores[h] = FloatOf(0x7fffffffu);
        }
      }
      __syncwarp();  // the weights and places of the tile before are read
      places[Warp() * kTile + Lane()] = place;
      Weigh(scores, state);
      __syncwarp();  // those of this tile are there
      AddValues<kAligned>(state);
    }
  }

  TW_DEVICE void StorePart(const State& state) const {
    TW_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      if (h >= heads) break;
      const float sum = WarpSum(state.sum[h]);
      const int at = Warp() * kHeads + h;
      StorePack<Type::kF32, kPack>(partials, (at * 32 + Lane()) * kPack, state.out[h]);
      if (Lane() == 0) maxima[at] = state.max[h], sums[at] = sum;
    }
  }

  TW_DEVICE void StoreOut(int head, int chunk, const float (&out)[kPack]) const {
    const i64 at = row * p.out_row + static_cast<i64>(first_head + head) * head_dim + chunk * kPack;
    if (head_dim % kPack == 0 && PacksAligned<kTypeQ, kPack>(p.out, p.out_row)) {
      StorePack<kTypeQ, kPack>(p.out, at, out);
    } else {
      TW_UNROLL
      for (int e = 0; e < kPack; ++e)
        if (chunk * kPack + e < head_dim) StoreElement<kTypeQ>(p.out, at + e, out[e]);
    }
  }
  TW_DEVICE void StoreAll(float value) const {
    const float out[kPack] = {value, value, value, value, value, value, value, value};
    for (int u = Thread(); u < heads * chunks; u += kThreads) StoreOut(u / chunks, u % chunks, out);
  }

  /// A chunk of a head's result: the parts of all warps, and of the lanes that share the chunk.
  TW_DEVICE void StoreSum(int head, int chunk) const {
    float top = MinusInfinity();
    TW_UNROLL
    for (int w = 0; w < kWarps; ++w) top = LargerOf(top, maxima[w * kHeads + head]);
    float sum = 0.0f, out[kPack] = {};
    TW_NO_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      const int at = w * kHeads + head;
      const float share = Exp2(maxima[at] - top);
      sum = Fma(sums[at], share, sum);
      float part[kPack] = {};
      for (int lane = chunk; lane < 32 / chunks * chunks; lane += chunks) {
        float more[kPack];
        LoadPack<Type::kF32, kPack>(partials, (at * 32 + lane) * kPack, more);
        TW_UNROLL
        for (int e = 0; e < kPack; ++e) part[e] += more[e];
      }
      TW_UNROLL
      for (int e = 0; e < kPack; ++e) out[e] = Fma(part[e], share, out[e]);
    }
    float scale = 1.0f / sum;
    if (sinks != nullptr) {
      // All relative to the larger one: no sink makes what the scores weigh infinite.
      const float sink = sinks[first_head + head] * kLog2E;
      const float base = LargerOf(top, sink);
      const float share = Exp2(top - base);
      scale = share / Fma(sum, share, Exp2(sink - base));
    }
    TW_UNROLL
    for (int e = 0; e < kPack; ++e) out[e] *= scale;
    StoreOut(head, chunk, out);
  }

  TW_DEVICE void Run() const {
    const int position = p.positions[row];
    const bool exists =
        position >= 0 && position < p.context && p.slots[row] >= 0 && p.slots[row] < p.sequences;
    if (!exists) {
      StoreAll(position == -1 ? 0.0f : FloatOf(0x7fffffffu));
      return;
    }
    State state;
    TW_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      state.max[h] = MinusInfinity();
      state.sum[h] = 0.0f;
      TW_UNROLL
      for (int e = 0; e < kPack; ++e) state.out[h][e] = 0.0f;
    }
    LoadQueries();
    __syncthreads();  // the queries are there
    const SequenceCache cache(p, p.slots[row], kv_head);
    const SeenRange seen = SeenBy(position, p.window);
    const u64 strides =
        static_cast<u64>(p.kv_head | p.kv_position | p.kv_page) * FloatBytes<kTypeKv>();
    const u64 bases = reinterpret_cast<u64>(p.k_cache) | reinterpret_cast<u64>(p.v_cache);
    if (head_dim % kPack == 0 && (bases | strides) % 16 == 0) {
      Compute<true>(cache, seen, state);
    } else {
      Compute<false>(cache, seen, state);
    }
    StorePart(state);
    __syncthreads();  // the parts of all warps are there
    for (int u = Thread(); u < heads * chunks; u += kThreads) StoreSum(u / chunks, u % chunks);
  }
};

}  // namespace tw
