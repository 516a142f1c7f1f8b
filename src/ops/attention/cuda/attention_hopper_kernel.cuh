#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/predicated.cuh"
#include "device/cuda/kernels/tma.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/wgmma_registers.cuh"
#include "ops/attention/cuda/hopper_tiles.cuh"

// Attention of many rows on TMA and wgmma (sm_90a), after Shah, Bikshandi, Zhang, Thakkar, Ramani,
// Dao 2024, FlashAttention-3. What a tile is, its rows of several sequences and the two parts of a
// weight are as in attention_mma_kernel.cuh. One warpgroup loads: its first warp keys and values,
// the others the queries of the next tile. Each of the others multiplies 64 vectors; it starts the
// scores of the next keys before it weighs the values of these, so that the tensor cores work while
// it computes exponentials, and takes turns with its neighbour for the same reason. CTAs stay and
// take one tile after the other.

namespace tw {

/// 2^x as Exp2, but 0 where that is subnormal: without the three instructions that scale such a
/// result.
TW_DEVICE float Exp2OrZero(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return __builtin_exp2f(x);
#endif
}

/// Spec: kType (of q, caches and out), kHeadDim, kPositions (of a tile of keys), kStages,
/// kConsumers (warpgroups that multiply), kParts (of a weight), kTurns (consumers take turns).
template <class Spec>
struct AttentionHopper {
  using Layout = HopperShared<Spec>;
  using Load = HopperLoad<Spec>;
  using SeenRun = typename Layout::Run;
  static constexpr Type kType = Spec::kType;
  static constexpr int kHeadDim = Spec::kHeadDim;
  static constexpr int kPositions = Spec::kPositions;
  static constexpr int kParts = Spec::kParts;
  static constexpr int kConsumers = Spec::kConsumers;
  /// Positions of a last tile of keys that is multiplied as half of one; 0: never.
  static constexpr int kHalfPositions = kPositions == 128 ? 64 : 0;
  static_assert(Layout::kBytes + 1023 <=
                    tilewright::cuda::AttentionHopperSmem(kHeadDim, Layout::kVectors, kPositions,
                                                          Spec::kStages),
                "what a launch asks for");

  /// A tile of values whose weights are known.
  struct Pending {
    u32 stage, parity;
    int from, first, limit;
  };

  /// One warpgroup that multiplies.
  struct Consumer {
    const AttentionParams& p;
    const Layout& at;
    int index;               // of the consumers
    int lane, warp;          // of the warpgroup
    int group;               // query heads of a key and value head
    int row_of[2];           // of this thread's two vectors, in the tile
    int first[2], limit[2];  // positions that they see
    float max[2], sum[2];    // of this thread's columns; max as an exponent of 2
    float out[kHeadDim / 2];
    u32 weights[kParts][kPositions / 4];
    RingPlace<Spec::kStages> ring;

    TW_DEVICE Consumer(const AttentionParams& params, const Layout& layout, int consumer)
        : p(params),
          at(layout),
          index(consumer),
          lane(static_cast<int>(threadIdx.x) % 32),
          warp(static_cast<int>(threadIdx.x) / 32 % 4),
          group(params.heads / params.kv_heads) {
      TW_UNROLL
      for (int h = 0; h < 2; ++h) row_of[h] = (64 * index + VectorOf(h)) / group;
    }
    /// Of the warpgroup's 64.
    TW_DEVICE int VectorOf(int h) const { return 16 * warp + lane / 4 + 8 * h; }

    TW_DEVICE void TakeTurn() const {
      if constexpr (Spec::kTurns) NamedBarrier(Layout::TurnBarrier(index), 256);
    }
    TW_DEVICE void EndTurn() const {
      if constexpr (Spec::kTurns)
        NamedBarrierArrive(Layout::TurnBarrier((index + 1) % kConsumers), 256);
    }
    /// All of the warpgroup.
    TW_DEVICE void Together() const { NamedBarrier(Layout::ConsumerBarrier(index), 128); }

    // kUsed: positions of a tile that are multiplied, from its first one on.

    /// Starts s = q . k; the keys have arrived.
    template <int kUsed>
    TW_DEVICE void StartScores(float (&s)[kUsed / 2], u32 queries) const {
      const u64 a = WgmmaDescriptor(queries + static_cast<u32>(index) * 64 * 128, 16, 1024);
      const u64 b = WgmmaDescriptor(at.Keys(ring.place), 16, 1024);
      WgmmaShared<kType, kUsed, 0>(s, a, b);
      if constexpr (kHeadDim == 128) {
        WgmmaShared<kType, kUsed, 1>(s, a + (Layout::kQueryHalf >> 4), b + (Layout::kHalf >> 4));
      }
      WgmmaCommit();
    }

    /// Starts out += weights . v of a tile whose values have arrived.
    template <int kUsed>
    TW_DEVICE void StartValues(u32 stage) {
      const u64 b = WgmmaDescriptor(at.Values(stage), Layout::kHalf, 1024);
      TW_UNROLL
      for (int j = 0; j < kUsed / 16; ++j) {
        TW_UNROLL
        for (int part = 0; part < kParts; ++part) {
          WgmmaRegisters<kType, kHeadDim>(out, &weights[part][4 * j], b + j * (2048 >> 4));
        }
      }
      WgmmaCommit();
    }

    /// Waits for the values of a tile; positions that no row of the run sees become zeros, since
    /// whatever is there times a weight of zero might be NaN.
    template <int kUsed>
    TW_DEVICE void AwaitValues(const Pending& tile) const {
      MbarrierWait(at.ValuesFull(tile.stage), tile.parity);
      if (tile.from >= tile.first && tile.from + kUsed <= tile.limit) return;
      constexpr int kChunks = kHeadDim / 8;
      const int thread = 32 * warp + lane;
      for (int line = thread / kChunks; line < kUsed; line += 128 / kChunks) {
        const int position = tile.from + line;
        if (position >= tile.first && position < tile.limit) continue;
        StoreShared16(at.Values(tile.stage) + Layout::Offset(line, thread % kChunks), 0, 0, 0, 0);
      }
      FenceBeforeTma();
      Together();  // zeros of all threads are there
    }

    template <int kUsed, bool kMasked>
    TW_DEVICE void Weigh(float (&s)[kUsed / 2], int from, float (&shrink)[2]) {
      constexpr int kBlocks = kUsed / 8;  // of 8 positions
      const float scale = ExponentScale(p);
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        float top = MinusInfinity();
        TW_UNROLL
        for (int b = 0; b < kBlocks; ++b) {
          TW_UNROLL
          for (int i = 0; i < 2; ++i) {
            float& score = s[4 * b + 2 * h + i];
            if constexpr (kMasked) {
              const int position = from + 8 * b + lane % 4 * 2 + i;
              if (position < first[h] || position >= limit[h]) score = MinusInfinity();
            }
            top = LargerOf(top, score);
          }
        }
        // The four threads of a row.
        top = LargerOf(top, __shfl_xor_sync(kAllLanes, top, 1));
        top = LargerOf(top, __shfl_xor_sync(kAllLanes, top, 2));
        const float after = LargerOf(max[h], top * scale);
        // A row that has seen nothing yet has weights of zero, not of exp(inf - inf).
        const float base = after == MinusInfinity() ? 0.0f : after;
        shrink[h] = Exp2OrZero(max[h] - base);
        max[h] = after;
        float total[2] = {0.0f, 0.0f};
        TW_UNROLL
        for (int b = 0; b < kBlocks; ++b) {
          TW_UNROLL
          for (int i = 0; i < 2; ++i) {
            float& weight = s[4 * b + 2 * h + i];
            weight = Exp2OrZero(Fma(weight, scale, -base));
            total[i] += weight;
          }
        }
        sum[h] = Fma(sum[h], shrink[h], total[0] + total[1]);
      }
    }
    template <int kUsed>
    TW_DEVICE void Weigh(float (&s)[kUsed / 2], int from, const SeenRun& run, bool alone,
                         float (&shrink)[2]) {
      CapScores(p, s);
      if (!alone || from < run.last_first || from + kUsed > run.first_limit) {
        Weigh<kUsed, true>(s, from, shrink);
      } else {
        Weigh<kUsed, false>(s, from, shrink);
      }
    }

    /// Weights as operands A: two blocks of D are one step of A.
    template <int kUsed>
    TW_DEVICE void Pack(const float (&s)[kUsed / 2]) {
      TW_UNROLL
      for (int i = 0; i < kUsed / 4; ++i) {
        float pair[2] = {s[2 * i], s[2 * i + 1]};
        TW_UNROLL
        for (int part = 0; part < kParts; ++part) {
          const u32 word = PackPairOf<kType>(pair[0], pair[1]);
          weights[part][i] = word;
          pair[0] -= LowToF32<kType>(word);
          pair[1] -= HighToF32<kType>(word);
        }
      }
    }

    TW_DEVICE void Seen(const SeenRun& run, u32 place) {
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        const bool runs = row_of[h] >= run.begin && row_of[h] < run.end;
        first[h] = runs ? at.rows(place)[row_of[h]].first : 0;
        limit[h] = runs ? at.rows(place)[row_of[h]].limit : 0;
      }
    }

    /// The scores of the next tile, at `from`, and the values of `pending`, which it then is.
    template <int kUsed>
    TW_DEVICE void Step(u32 queries, int from, const SeenRun& run, bool alone, Pending& pending) {
      float s[kUsed / 2], shrink[2];
      MbarrierWait(at.KeysFull(ring.place), ring.parity);
      AwaitValues<kPositions>(pending);
      TakeTurn();
      WgmmaFence();
      StartScores<kUsed>(s, queries);
      StartValues<kPositions>(pending.stage);
      EndTurn();
      WgmmaWaitFor<1>(s);
      if (lane == 0) MbarrierArrive(at.KeysEmpty(ring.place));
      Weigh<kUsed>(s, from, run, alone, shrink);
      WgmmaWaitFor<0>(out);
      if (lane == 0) MbarrierArrive(at.ValuesEmpty(pending.stage));
      TW_UNROLL
      for (int b = 0; b < kHeadDim / 8; ++b) {
        TW_UNROLL
        for (int i = 0; i < 4; ++i) out[4 * b + i] *= shrink[i / 2];
      }
      Pack<kUsed>(s);
      pending = {ring.place, ring.parity, from, run.first, run.limit};
      ring.Advance();
    }

    /// The values of the last tile.
    template <int kUsed>
    TW_DEVICE void Finish(const Pending& pending) {
      AwaitValues<kUsed>(pending);
      WgmmaFence();
      StartValues<kUsed>(pending.stage);
      WgmmaWaitFor<0>(out);
      if (lane == 0) MbarrierArrive(at.ValuesEmpty(pending.stage));
    }

    /// All that the rows of a tile see.
    TW_DEVICE void Attend(u32 place) {
      TW_UNROLL
      for (int h = 0; h < 2; ++h) max[h] = MinusInfinity(), sum[h] = 0.0f;
      TW_UNROLL
      for (int i = 0; i < kHeadDim / 2; ++i) out[i] = 0.0f;
      const int runs = at.run_count(place);
      if (runs == 0) return;
      const u32 queries = at.Queries(place);
      SeenRun run = at.runs(place)[0];
      Seen(run, place);
      int number = 0;
      int from = run.first / kPositions * kPositions;
      Pending pending{ring.place, ring.parity, from, run.first, run.limit};
      {
        float s[kPositions / 2], shrink[2];
        MbarrierWait(at.KeysFull(ring.place), ring.parity);
        TakeTurn();
        WgmmaFence();
        StartScores<kPositions>(s, queries);
        EndTurn();
        WgmmaWaitFor<0>(s);
        if (lane == 0) MbarrierArrive(at.KeysEmpty(ring.place));
        Weigh<kPositions>(s, from, run, runs == 1, shrink);
        Pack<kPositions>(s);
        ring.Advance();
      }
      bool half = false;
      TW_NO_UNROLL
      while (true) {
        from += kPositions;
        if (from >= run.limit) {
          if (++number == runs) break;
          run = at.runs(place)[number];
          Seen(run, place);
          from = run.first / kPositions * kPositions;
        }
        // A prompt's last tile is seen by half or less every other time.
        half = number == runs - 1 && from + kHalfPositions >= run.limit;
        if (kHalfPositions > 0 && half) break;
        Step<kPositions>(queries, from, run, runs == 1, pending);
      }
      if constexpr (kHalfPositions > 0) {
        if (half) {
          Step<kHalfPositions>(queries, from, run, runs == 1, pending);
          Finish<kHalfPositions>(pending);
          return;
        }
      }
      Finish<kPositions>(pending);
    }

    /// Results leave through the place of the queries, which have been read.
    TW_DEVICE void Store(const HopperTile& tile, u32 place) {
      const u32 staged = at.Queries(place) + static_cast<u32>(index) * 64 * 128;
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        sum[h] += __shfl_xor_sync(kAllLanes, sum[h], 1);
        sum[h] += __shfl_xor_sync(kAllLanes, sum[h], 2);
        if (row_of[h] >= tile.rows) continue;
        const int seen = at.rows(place)[row_of[h]].limit;
        const float scale = 1.0f / sum[h];
        const float other = seen == 0 ? 0.0f : FloatOf(0x7fffffffu);
        TW_UNROLL
        for (int b = 0; b < kHeadDim / 8; ++b) {
          const float low = seen > 0 ? out[4 * b + 2 * h] * scale : other;
          const float high = seen > 0 ? out[4 * b + 2 * h + 1] * scale : other;
          StoreShared4(
              staged + Layout::QueryOffset(VectorOf(h), b) + static_cast<u32>(lane % 4) * 4,
              PackPairOf<kType>(low, high));
        }
      }
      Together();  // all results are staged
      constexpr int kChunks = kHeadDim / 8;
      const int thread = 32 * warp + lane;
      const bool wide = (reinterpret_cast<u64>(p.out) | static_cast<u64>(p.out_row) * 2) % 16 == 0;
      for (int vector = thread / kChunks; vector < 64; vector += 128 / kChunks) {
        const int row = (64 * index + vector) / group;
        if (row >= tile.rows) break;
        const int head = tile.kv_head * group + 64 * index + vector - row * group;
        const i64 offset =
            (tile.first_row + row) * p.out_row + head * kHeadDim + thread % kChunks * 8;
        u32 words[4];
        LoadShared16(words, staged + Layout::QueryOffset(vector, thread % kChunks));
        u16* to = static_cast<u16*>(p.out) + offset;
        if (wide) {
          StoreGlobal16(to, words);
        } else {
          TW_UNROLL
          for (int i = 0; i < 8; ++i) to[i] = static_cast<u16>(words[i / 2] >> 16 * (i % 2));
        }
      }
    }

    TW_DEVICE void Run() {
      // The first consumer begins.
      if constexpr (Spec::kTurns) {
        if (index == kConsumers - 1) EndTurn();
      }
      RingPlace<2> place;
      for (TileLoop loop(p, Layout::kVectors); !loop.Done(); loop.Next()) {
        const HopperTile tile = loop.Tile();
        MbarrierWait(at.QueriesFull(place.place), place.parity);
        Attend(place.place);
        Store(tile, place.place);
        // Both places may have been written by all lanes.
        __syncwarp();
        if (lane == 0) MbarrierArrive(at.QueriesEmpty(place.place));
        place.Advance();
      }
      // The turn that its neighbour has left it.
      if constexpr (Spec::kTurns) {
        if (index == 0) TakeTurn();
      }
    }
  };

  /// `smem`: shared, Layout::kBytes from the next multiple of 1024 on.
  TW_DEVICE static void Run(const AttentionHopperParams& params, u8* smem) {
    LaunchDependents();
    // The launch asks for 1023 bytes more than needed: the alignment of the window is not promised.
    const Layout at(smem + (1024 - SmemAddress(smem) % 1024) % 1024);
    // The same in all lanes, and the compiler is to know.
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
    if (threadIdx.x == 0) {
      if (params.box_positions > 0) {
        TmaPrefetchMap(&params.keys);
        TmaPrefetchMap(&params.values);
      }
      at.InitBarriers();
    }
    __syncthreads();  // the barriers are ready
    WaitForPrerequisites();
    if (warp < 4) {
      RegistersLower<kConsumers == 3 ? 32 : 40>();
      if (warp == 0) {
        Load::KeysAndValues(params, at);
      } else {
        Load::Queries(params.attention, at);
      }
    } else {
      RegistersRaise<kConsumers == 3 ? 160 : 232>();
      Consumer(params.attention, at, warp / 4 - 1).Run();
    }
  }
};

}  // namespace tw
