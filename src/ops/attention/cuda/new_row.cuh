#pragma once

#include "device/cuda/kernels/ldmatrix.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/rotation.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/attention/cuda/kv_tile.cuh"
#include "tilewright/cuda/attention_params.h"

// What a row brings to attention that turns it: the query heads of a CTA, the row's own key and its
// value, as the product in front left them. The CTA turns them together, into a tile of shared
// memory: a thread has the same pair of elements of several heads, and its angle in registers.

namespace tw {

using tilewright::cuda::RopeAttentionParams;

/// Of 16-bit elements. `kThreads`: of the CTA.
template <Type kType, int kHeadDim, int kThreads>
struct NewRow {
  static constexpr int kQueries = 8;         // lines 0 .. 7 of the tile
  static constexpr int kKeyLine = kQueries;  // and then the key
  static constexpr int kValueLine = kQueries + 1;
  static constexpr int kLines = kQueries + 2;
  static constexpr int kPairs = kHeadDim / 2;
  static constexpr int kAtOnce = kThreads / kPairs;  // lines
  static constexpr int kEach = (kLines + kAtOnce - 1) / kAtOnce;
  static constexpr int kChunks = kHeadDim / 8;
  static_assert(kThreads % kPairs == 0, "a thread has one pair of every line");
  static_assert(kLines * kHeadDim * 2 == tilewright::cuda::AttentionNewRowSmem(kHeadDim), "tile");

  const RopeAttentionParams& p;
  u8* tile;           // shared: [kLines] lines in chunks by KvOffset
  int pair;           // of the thread
  int first, second;  // its elements
  bool turns;         // whether keys and queries turn it; the rest of a head passes through
  u64 frequency;
  SinCos angle;
  u32 x[kEach];  // pairs as they were

  TW_DEVICE NewRow(const RopeAttentionParams& params, u8* smem)
      : p(params),
        tile(smem),
        pair(static_cast<int>(threadIdx.x) % kPairs),
        first(2 * pair),
        second(2 * pair + 1),
        turns(2 * pair < p.dims),
        frequency(0),
        angle{0.0f, 1.0f} {
    if (turns && p.half_split != 0) {
      first = pair;
      second = pair + p.dims / 2;
    }
  }

  /// The frequency of the pair: a constant, which may be read ahead of the wait for earlier
  /// kernels, by a load that is not moved.
  TW_DEVICE void LoadFrequency() {
    if (!turns) return;
#if defined(__CUDACC__)
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                 : "=l"(frequency)
                 : "l"(p.turns + pair)
                 : "memory");
#else
    frequency = p.turns[pair];
#endif
  }
  /// Of the row's position.
  TW_DEVICE void SetAngle(int position) { angle = SinCosOfTurns(position, frequency); }

  /// The thread's `i`-th line: the key, the value, then the queries; kLines and more: none.
  TW_DEVICE int LineOf(int i) const {
    const int at = static_cast<int>(threadIdx.x) / kPairs + i * kAtOnce;
    return at < 2 ? at + kKeyLine : at < kLines ? at - 2 : at;
  }

  /// Starts the loads of the heads of a CTA.
  TW_DEVICE void Load(int row, int kv_head, int first_head, int heads) {
    TW_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int line = LineOf(i);
      const void* base = p.attention.q;
      i64 from = row * p.attention.q_row + (first_head + line) * p.attention.q_head;
      if (line == kKeyLine) {
        base = p.k;
        from = row * p.k_row + kv_head * p.k_head;
      } else if (line == kValueLine) {
        base = p.v;
        from = row * p.v_row + kv_head * p.v_head;
      }
      x[i] = 0;
      if ((line >= heads && line < kKeyLine) || line >= kLines) continue;
      const u16* head = static_cast<const u16*>(base) + from;
      x[i] = LoadOnce2(head + first) | static_cast<u32>(LoadOnce2(head + second)) << 16;
    }
  }

  TW_DEVICE u16* ElementOf(int line, int element) const {
    return reinterpret_cast<u16*>(tile + KvOffset(line, element / 8, kChunks)) + element % 8;
  }
  /// Turns what was loaded and puts it into the tile: zeros for queries that the CTA does not have.
  /// Where the row has no place in the caches, its key is NaN and its value zeros.
  TW_DEVICE void Put(bool placed) const {
    TW_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int line = LineOf(i);
      if (line >= kLines) continue;
      Turned pair_of{LowToF32<kType>(x[i]), HighToF32<kType>(x[i])};
      if (turns && line != kValueLine)
        pair_of = TurnPair(pair_of.x0, pair_of.x1, angle.cos, angle.sin);
      u32 packed = PackPairOf<kType>(pair_of.x0, pair_of.x1);
      if (!placed && line >= kQueries) packed = line == kKeyLine ? ~0u : 0u;
      *ElementOf(line, first) = static_cast<u16>(packed);
      *ElementOf(line, second) = static_cast<u16>(packed >> 16);
    }
  }

  /// The queries of the tile as Q^T, B of mma.sync: zeros where the CTA has no head.
  template <int kSteps>
  TW_DEVICE void Queries(u32 (&q)[kSteps][2]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const u32 from = KvOffset(lane % 8, lane / 8, kChunks);
    TW_UNROLL
    for (int step = 0; step < kSteps; step += 2) {
      u32 both[4];
      // Four chunks further, which are no bits of lane / 8.
      LdMatrixX4(both, SmemAddress(tile) + (from ^ (step * 32)));
      q[step][0] = both[0], q[step][1] = both[1];
      q[step + 1][0] = both[2], q[step + 1][1] = both[3];
    }
  }

  /// 16 bytes of the key or of the value.
  TW_DEVICE U32x4 Chunk(int line, int chunk) const {
    return *reinterpret_cast<const U32x4*>(tile + KvOffset(line, chunk, kChunks));
  }

  /// The row's key and value into the caches, at `place`: lanes of one warp.
  TW_DEVICE void Store(i64 place, bool aligned) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    TW_UNROLL
    for (int unit = lane; unit < 2 * kChunks; unit += 32) {
      const int line = kKeyLine + unit / kChunks, chunk = unit % kChunks;
      const void* cache = line == kKeyLine ? p.attention.k_cache : p.attention.v_cache;
      u16* to = static_cast<u16*>(const_cast<void*>(cache)) + place + 8 * chunk;
      const U32x4 words = Chunk(line, chunk);
      if (aligned) {
        *reinterpret_cast<U32x4*>(to) = words;
      } else {
        TW_UNROLL
        for (int i = 0; i < 8; ++i) to[i] = static_cast<u16>(words.v[i / 2] >> (i % 2 * 16));
      }
    }
  }
};

}  // namespace tw
