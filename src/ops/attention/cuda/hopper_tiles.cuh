#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/tma.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/attention/cuda/kv_tile.cuh"

// What attention_hopper_kernel.cuh works on: the tiles of a CTA, its shared memory, and the
// warpgroup that fills it.

namespace tw {

using tilewright::cuda::AttentionHopperParams;

/// Some adjacent rows, with the query heads of one KV head.
struct HopperTile {
  int first_row, rows;
  int kv_head;
};

/// The tiles of this CTA. Later rows of a prompt see more: they come first, those of all heads
/// together, and every other round runs backwards, so that all CTAs have about as much to do.
struct TileLoop {
  int heads;  // KV heads
  int rows, rows_each;
  int tiles;  // of all heads
  int round = 0;

  TW_DEVICE TileLoop(const AttentionParams& p, int vectors)
      : heads(p.kv_heads), rows(p.rows), rows_each(vectors / (p.heads / p.kv_heads)) {
    tiles = (rows + rows_each - 1) / rows_each * heads;
  }
  TW_DEVICE int Index() const {
    const int ctas = static_cast<int>(gridDim.x);
    const int cta = static_cast<int>(blockIdx.x);
    return round * ctas + (round % 2 == 0 ? cta : ctas - 1 - cta);
  }
  TW_DEVICE bool Done() const { return Index() >= tiles; }
  TW_DEVICE void Next() { ++round; }
  TW_DEVICE HopperTile Tile() const {
    const int index = Index();
    const int first_row = (tiles - 1 - index) / heads * rows_each;
    return {first_row, rows - first_row < rows_each ? rows - first_row : rows_each, index % heads};
  }
};

/// A place of a ring, and the parity of the phase of its barriers.
template <int kPlaces>
struct RingPlace {
  u32 place = 0;
  u32 parity = 0;
  TW_DEVICE void Advance() {
    if (++place == kPlaces) place = 0, parity ^= 1;
  }
};

/// Shared memory of a CTA, from a multiple of 1024. Spec as of AttentionHopper.
template <class Spec>
struct HopperShared {
  static constexpr int kHalves = Spec::kHeadDim / 64;  // of a head: lines of 128 bytes
  static constexpr int kVectors = 64 * Spec::kConsumers;
  static constexpr int kPositions = Spec::kPositions;
  static constexpr int kStages = Spec::kStages;
  static constexpr int kLoaders = 96;  // threads that load queries
  static_assert(kHalves == 1 || kHalves == 2, "heads of 64 or 128 elements");
  static_assert(kPositions % 64 == 0, "whole boxes");

  /// What a row of a tile sees; limit 0: it is padding, -1: it does not exist.
  struct Row {
    int first, limit, slot;
  };
  /// Rows `begin` to `end` - 1 of a tile, all of one sequence; what they see together has no gap.
  struct Run {
    int begin, end;
    int first, limit;             // positions that some row sees
    int last_first, first_limit;  // positions that every row sees
    int slot;
  };

  // queries: [2][kHalves][kVectors] lines; keys, values: [kStages][kHalves][kPositions] lines, all
  // of 128 bytes in the 128-byte swizzle; then barriers, rows [2][kVectors], runs [2][kVectors] and
  // their numbers [2].
  static constexpr u32 kQueryHalf = kVectors * 128;
  static constexpr u32 kQueryBytes = kHalves * kQueryHalf;
  static constexpr u32 kHalf = kPositions * 128;
  static constexpr u32 kTileBytes = kHalves * kHalf;
  static constexpr u32 kBarriers = 2 * kQueryBytes + 2 * kStages * kTileBytes;
  static constexpr u32 kRows = kBarriers + 8 * (6 + 4 * kStages);
  static constexpr u32 kRuns = kRows + 2 * kVectors * sizeof(Row);
  static constexpr u32 kCounts = kRuns + 2 * kVectors * sizeof(Run);
  static constexpr u32 kBytes = kCounts + 2 * sizeof(int);

  u8* memory;
  u32 start;  // of memory

  TW_DEVICE explicit HopperShared(u8* aligned) : memory(aligned), start(SmemAddress(aligned)) {}

  TW_DEVICE u32 Queries(u32 place) const { return start + place * kQueryBytes; }
  TW_DEVICE u32 Keys(u32 stage) const { return start + 2 * kQueryBytes + stage * kTileBytes; }
  TW_DEVICE u32 Values(u32 stage) const { return Keys(kStages + stage); }
  /// Of a chunk of 16 bytes, in a tile of keys or values, and in the queries from a multiple of
  /// eight vectors on.
  static TW_DEVICE u32 Offset(int line, int chunk) {
    return static_cast<u32>(chunk / 8) * kHalf + SwizzledChunk(line, chunk % 8);
  }
  static TW_DEVICE u32 QueryOffset(int vector, int chunk) {
    return static_cast<u32>(chunk / 8) * kQueryHalf + SwizzledChunk(vector, chunk % 8);
  }
  static TW_DEVICE u32 SwizzledChunk(int line, int chunk) {
    return static_cast<u32>(line * 128 + (chunk ^ (line & 7)) * 16);
  }

  TW_DEVICE Row* rows(u32 place) const {
    return reinterpret_cast<Row*>(memory + kRows) + place * kVectors;
  }
  TW_DEVICE Run* runs(u32 place) const {
    return reinterpret_cast<Run*>(memory + kRuns) + place * kVectors;
  }
  TW_DEVICE int& run_count(u32 place) const {
    return reinterpret_cast<int*>(memory + kCounts)[place];
  }

  TW_DEVICE u32 Barrier(u32 number) const { return start + kBarriers + 8 * number; }
  TW_DEVICE u32 QueriesFull(u32 place) const { return Barrier(place); }
  TW_DEVICE u32 QueriesEmpty(u32 place) const { return Barrier(2 + place); }
  TW_DEVICE u32 RunsFull(u32 place) const { return Barrier(4 + place); }
  TW_DEVICE u32 KeysFull(u32 stage) const { return Barrier(6 + stage); }
  TW_DEVICE u32 KeysEmpty(u32 stage) const { return Barrier(6 + kStages + stage); }
  TW_DEVICE u32 ValuesFull(u32 stage) const { return Barrier(6 + 2 * kStages + stage); }
  TW_DEVICE u32 ValuesEmpty(u32 stage) const { return Barrier(6 + 3 * kStages + stage); }
  TW_DEVICE void InitBarriers() const {
    constexpr u32 kReaders = 4 * Spec::kConsumers;  // a lane of each warp
    for (u32 i = 0; i < 2; ++i) {
      MbarrierInit(QueriesFull(i), kLoaders);
      MbarrierInit(QueriesEmpty(i), kReaders + 1);  // and the warp that loads keys
      MbarrierInit(RunsFull(i), 1);
    }
    for (u32 i = 0; i < kStages; ++i) {
      MbarrierInit(KeysFull(i), 1);
      MbarrierInit(KeysEmpty(i), kReaders);
      MbarrierInit(ValuesFull(i), 1);
      MbarrierInit(ValuesEmpty(i), kReaders);
    }
    FenceBarrierInit();
  }
  // Of named barriers.
  static TW_DEVICE u32 ConsumerBarrier(int consumer) { return 1 + static_cast<u32>(consumer); }
  static TW_DEVICE u32 TurnBarrier(int consumer) {
    return 1 + Spec::kConsumers + static_cast<u32>(consumer);
  }
  static constexpr u32 kLoaderBarrier = 1 + 2 * Spec::kConsumers;
};

/// What the first warpgroup does.
template <class Spec>
struct HopperLoad {
  using Shared = HopperShared<Spec>;
  using Row = typename Shared::Row;
  using Run = typename Shared::Run;
  static constexpr Type kType = Spec::kType;
  static constexpr int kPositions = Spec::kPositions;
  static constexpr int kChunks = Spec::kHeadDim / 8;
  using Elements = KvTile<kType, Spec::kHeadDim, kPositions, 128>;

  /// Where the boxes of a tile lie: pages, -1 for a box that no row sees.
  struct Boxes {
    int page[kPositions / 64];
    u32 bytes = 0;
    bool missing = false;  ///< a page does not exist

    TW_DEVICE Boxes(const AttentionHopperParams& params, const Run& run, int from) {
      const AttentionParams& p = params.attention;
      const int box = params.box_positions;
      TW_UNROLL
      for (int i = 0; i < kPositions / 64; ++i) {
        const int begin = from + i * box;
        page[i] = -1;
        if (i * box >= kPositions || begin >= run.limit || begin + box <= run.first) continue;
        page[i] = run.slot;
        if (p.pages != nullptr) {
          page[i] = p.pages[run.slot * p.pages_slot + begin / p.page_size];
          missing = missing || page[i] < 0 || page[i] >= p.physical_pages;
        }
        bytes += static_cast<u32>(box) * 128 * Shared::kHalves;
      }
    }
  };

  /// Keys or values of positions `from` and up, by the copy engine.
  static TW_DEVICE void CopyBoxes(const AttentionHopperParams& params, const void* map,
                                  const Boxes& boxes, u32 smem, u32 full, int kv_head, int from) {
    const int box = params.box_positions;
    MbarrierArriveExpectTx(full, boxes.bytes);
    TW_UNROLL
    for (int i = 0; i < kPositions / 64; ++i) {
      if (boxes.page[i] < 0) continue;
      const int position = from + i * box;
      const int line =
          params.attention.pages != nullptr ? position % params.attention.page_size : position;
      TW_UNROLL
      for (int half = 0; half < Shared::kHalves; ++half) {
        TmaLoad4D(smem + half * Shared::kHalf + static_cast<u32>(i * box) * 128, map, full,
                  64 * half, kv_head, line, boxes.page[i]);
      }
    }
  }

  /// The same by a warp, from any address of an element, for caches that the copy engine cannot
  /// address and for tiles with a page that does not exist: its keys are NaN, so that the scores of
  /// the rows that see them are, its values zeros.
  static TW_DEVICE void CopyElements(const AttentionParams& p, const void* cache, u32 missing,
                                     u32 smem, const Run& run, int kv_head, int from, int lane) {
    const SequenceCache sequence(p, run.slot, kv_head);
    TW_NO_UNROLL
    for (int i = lane; i < kPositions * kChunks; i += 32) {
      const int line = i / kChunks;
      const int chunk = i % kChunks;
      const int position = from + line;
      const u32 to = smem + Shared::Offset(line, chunk);
      i64 offset = 0;
      if (position < run.first || position >= run.limit) {
        StoreShared16(to, 0, 0, 0, 0);
      } else if (!sequence.Find(position, offset)) {
        StoreShared16(to, missing, missing, missing, missing);
      } else {
        Elements::CopyElements(to, static_cast<const u8*>(cache) + (offset + 8 * chunk) * 2);
      }
    }
    FenceBeforeTma();
    __syncwarp();
  }

  /// One warp: the keys and values of all that the tiles of this CTA see.
  static TW_DEVICE void KeysAndValues(const AttentionHopperParams& params, const Shared& at) {
    const AttentionParams& p = params.attention;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    RingPlace<Spec::kStages> ring;
    RingPlace<2> tiles;
    for (TileLoop loop(p, Shared::kVectors); !loop.Done(); loop.Next()) {
      const int kv_head = loop.Tile().kv_head;
      MbarrierWait(at.RunsFull(tiles.place), tiles.parity);
      for (int number = 0; number < at.run_count(tiles.place); ++number) {
        const Run run = at.runs(tiles.place)[number];
        TW_NO_UNROLL
        for (int from = run.first / kPositions * kPositions; from < run.limit; from += kPositions) {
          bool boxed = false;
          if (params.box_positions > 0) {
            const Boxes boxes(params, run, from);
            boxed = !boxes.missing;
            // The consumers have read what was here.
            MbarrierWait(at.KeysEmpty(ring.place), ring.parity ^ 1);
            if (boxed && lane == 0) {
              CopyBoxes(params, &params.keys, boxes, at.Keys(ring.place), at.KeysFull(ring.place),
                        kv_head, from);
            }
            MbarrierWait(at.ValuesEmpty(ring.place), ring.parity ^ 1);
            if (boxed && lane == 0) {
              CopyBoxes(params, &params.values, boxes, at.Values(ring.place),
                        at.ValuesFull(ring.place), kv_head, from);
            }
          }
          if (!boxed) {
            MbarrierWait(at.KeysEmpty(ring.place), ring.parity ^ 1);
            CopyElements(p, p.k_cache, ~0u, at.Keys(ring.place), run, kv_head, from, lane);
            if (lane == 0) MbarrierArrive(at.KeysFull(ring.place));
            MbarrierWait(at.ValuesEmpty(ring.place), ring.parity ^ 1);
            CopyElements(p, p.v_cache, 0, at.Values(ring.place), run, kv_head, from, lane);
            if (lane == 0) MbarrierArrive(at.ValuesFull(ring.place));
          }
          ring.Advance();
        }
      }
      __syncwarp();  // all lanes have read the runs
      if (lane == 0) MbarrierArrive(at.QueriesEmpty(tiles.place));
      tiles.Advance();
    }
  }

  static TW_DEVICE Row RowAt(const AttentionParams& p, int row) {
    const int position = p.positions[row], its_slot = p.slots[row];  // one wait for both
    const int slot = position >= 0 ? its_slot : 0;
    Row seen{0, position == -1 ? 0 : -1, slot};
    if (position >= 0 && position < p.context && slot >= 0 && slot < p.sequences) {
      const SeenRange range = SeenBy(position, p.window);
      seen.first = range.first;
      seen.limit = range.limit;
    }
    return seen;
  }

  /// Whether row `r` goes on with the run of the row before it, as the next one of a prompt does.
  static TW_DEVICE bool GoesOn(const Row* rows, int r) {
    const Row& row = rows[r];
    const Row& before = rows[r - 1];
    return before.limit > 0 && row.slot == before.slot && row.limit >= before.limit &&
           row.first >= before.first && row.first <= before.limit;
  }
  /// Of rows that all go on.
  static TW_DEVICE Run WholeRun(const Row* rows, int count) {
    const Row& low = rows[0];
    const Row& high = rows[count - 1];
    return {0, count, low.first, high.limit, high.first, low.limit, low.slot};
  }
  /// By one thread.
  static TW_DEVICE int FindRuns(const Row* rows, int count, Run* runs) {
    int found = 0;
    Run run{};
    TW_NO_UNROLL
    for (int r = 0; r < count; ++r) {
      const Row row = rows[r];
      // What the rows of a run see has no gap: what nobody sees may not exist, or be NaN.
      if (run.end == r && r > 0 && row.limit > 0 && row.slot == run.slot &&
          row.first <= run.limit && row.limit >= run.first) {
        run.first = row.first < run.first ? row.first : run.first;
        run.limit = row.limit > run.limit ? row.limit : run.limit;
        run.last_first = row.first > run.last_first ? row.first : run.last_first;
        run.first_limit = row.limit < run.first_limit ? row.limit : run.first_limit;
        run.end = r + 1;
      } else {
        if (run.end > 0) runs[found++] = run;
        run = Run{};
        if (row.limit > 0) run = {r, r + 1, row.first, row.limit, row.first, row.limit, row.slot};
      }
    }
    if (run.end > 0) runs[found++] = run;
    return found;
  }

  /// A chunk of 8 elements of q, from any address of an element.
  static TW_DEVICE void CopyQuery(const AttentionParams& p, u32 to, i64 offset, bool wide) {
    const u8* from = static_cast<const u8*>(p.q) + offset * 2;
    if (wide) {
      CpAsync16(to, from, 16);
    } else {
      Elements::CopyElements(to, from);
    }
  }

  /// The other warps: the queries of all tiles of this CTA, and what their rows see.
  static TW_DEVICE void Queries(const AttentionParams& p, const Shared& at) {
    const int thread = static_cast<int>(threadIdx.x) - 32;
    const int group = p.heads / p.kv_heads;
    const bool wide =
        (reinterpret_cast<u64>(p.q) | static_cast<u64>(p.q_head | p.q_row) * 2) % 16 == 0;
    RingPlace<2> tiles;
    for (TileLoop loop(p, Shared::kVectors); !loop.Done(); loop.Next()) {
      const HopperTile tile = loop.Tile();
      // What was here has been read, and the results that left through it too.
      MbarrierWait(at.QueriesEmpty(tiles.place), tiles.parity ^ 1);
      for (int r = thread; r < tile.rows; r += Shared::kLoaders)
        at.rows(tiles.place)[r] = RowAt(p, tile.first_row + r);
      Row* rows = at.rows(tiles.place);
      int& run_count = at.run_count(tiles.place);
      if (thread == 0) run_count = 0;
      NamedBarrier(Shared::kLoaderBarrier, Shared::kLoaders);  // all rows are there
      // One thread takes microseconds to look at all rows, and the first keys wait for it: rows of
      // one prompt are told by all threads.
      bool breaks = rows[0].limit <= 0;
      for (int r = thread + 1; r < tile.rows; r += Shared::kLoaders)
        breaks = breaks || !GoesOn(rows, r);
      if (breaks) atomicAdd(&run_count, 1);
      NamedBarrier(Shared::kLoaderBarrier, Shared::kLoaders);  // all rows have been looked at
      if (thread == 0) {
        if (run_count > 0) {
          run_count = FindRuns(rows, tile.rows, at.runs(tiles.place));
        } else {
          at.runs(tiles.place)[0] = WholeRun(rows, tile.rows);
          run_count = 1;
        }
        MbarrierArrive(at.RunsFull(tiles.place));  // keys come beside the queries
      }
      TW_NO_UNROLL
      for (int i = thread; i < tile.rows * group * kChunks; i += Shared::kLoaders) {
        const int vector = i / kChunks;
        const int row = vector / group;
        const int head = tile.kv_head * group + vector - row * group;
        CopyQuery(p, at.Queries(tiles.place) + Shared::QueryOffset(vector, i % kChunks),
                  (tile.first_row + row) * p.q_row + head * p.q_head + i % kChunks * 8, wide);
      }
      CpAsyncCommit();
      CpAsyncWait<0>();
      FenceBeforeTma();
      MbarrierArrive(at.QueriesFull(tiles.place));
      tiles.Advance();
    }
  }
};

}  // namespace tw
