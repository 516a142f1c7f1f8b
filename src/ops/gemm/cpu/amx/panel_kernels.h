#pragma once

#include <type_traits>
#include <utility>

#include "device/cpu/tiles.h"
#include "ops/gemm/cpu/amx/tile_ops.h"
#include "ops/gemm/cpu/amx/unpack_pairs.h"
#include "ops/gemm/cpu/amx/unpack_quads.h"
#include "ops/gemm/cpu/amx/unpack_rows.h"
#include "ops/gemm/cpu/int8/epilogue.h"

/// The kernel, written once over the tiles `Tiles` (device/cpu/tiles.h) and the vector type `Vec`
/// that each kernel file defines before including this header. Everything lives in an unnamed
/// namespace.
///
/// Every element of D is one chain of tile products over ascending k, whatever the rows, panels and
/// chunks around it: results depend on their row of A and their column of B alone.
///
/// Blocking. Sums of 2 x 2 tiles stay in registers, beside an operand each. A pair of panels is
/// unpacked while the first group of row tiles multiplies, one step of k ahead of it. With several
/// groups k is cut into chunks so short that the unpacked pair stays in the L1 for all of them, while
/// activations stream from the L2: 4 KB a step from the L2 alone take 100 cycles, where the tile unit
/// takes 64. The price is that sums leave the registers after every chunk.

namespace tilewright::gemm_amx {
namespace {

using gemm_int8::F;
using gemm_int8::Vec;

/// Calls function.template operator()<0>() ... <kCount - 1>().
template <int kCount, class Function>
inline __attribute__((always_inline)) void Repeat(Function&& function) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (function.template operator()<kIndex>(), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

/// A step of a panel that will be unpacked soon enough to fetch it now.
using gemm_int8::StepAhead;

/// Weights that lie as tiles. (The ways to unpack the others: unpack.h.)
struct InPlace {
  static constexpr int kAShift = 0;
  void Begin(const std::uint8_t*, int, int) {}
  template <int kHalf>
  void Put(std::uint8_t*) const {}
  static void Prefetch(const StepAhead&, int) {}
};
template <class Weights>
constexpr bool kUnpacks = !std::is_same_v<Weights, InPlace>;

/// Steps that the unpacked weights of a single group of row tiles need: one is multiplied, one
/// written, and a store needs some time to leave for the cache.
constexpr int kRingSteps = 4;

/// What is fetched into the L2 while a group multiplies: in each step `lines` lines from `at` on.
struct Ahead {
  const std::uint8_t* at = nullptr;
  int lines = 0;

  /// Part `index` of `parts` of `bytes` from `all` on, over the steps of a group.
  static Ahead Part(const std::uint8_t* all, int bytes, int index, int parts, int steps) {
    const int lines = CeilDiv(bytes / 64, parts * steps), first = index * steps * lines;
    if (first >= bytes / 64) return {};
    return {all + static_cast<std::ptrdiff_t>(first) * 64, lines};
  }
};

/// Some row tiles times one or two panels over a chunk of k.
struct Group {
  const std::uint8_t* a = nullptr;           ///< first row tile at the first step
  int a_shift = 0;                           ///< 1 where two steps of weights share one of A
  std::size_t a_tile_bytes = 0;              ///< between row tiles
  const std::uint8_t* b[kGroupPanels] = {};  ///< tile of the first step of each panel
  std::size_t b_step_bytes = 0;              ///< between steps
  int b_mask = -1;                           ///< step s lies at s & b_mask
  int steps = 0;
  float* sums = nullptr;  ///< [row tile][panel][16][16], written, and read unless `first`
  bool first = true;      ///< the chunk is the first
  bool unpacks = false;   ///< b[], which is not there yet
  std::uint8_t* unpacked[kGroupPanels] = {};
  const std::uint8_t* panels[kGroupPanels] = {};
  int k = 0, first_step = 0;  ///< of the panels; where the chunk begins
  /// What follows this pair: the same panels of the next, or the next chunk of the first.
  const std::uint8_t* next[kGroupPanels] = {};
  int next_step = 0;
  int steps_ahead = 0;  ///< 0: a whole pair ahead; of tiles then what `tiles` says
  /// Of `next`, where weights lie as tiles that several groups read; of the next chunk of A.
  Ahead tiles[kGroupPanels], rows;

  std::size_t StepAt(int step) const {
    return static_cast<std::size_t>(step & b_mask) * b_step_bytes;
  }
  /// The step to fetch while step `step` of the chunk is unpacked: the same of what follows, or, where
  /// a pair is read from end to end, one a little ahead.
  StepAhead StepAfter(int panel, int step) const {
    if (steps_ahead == 0) return {next[panel], next_step + step};
    const int at = first_step + step + steps_ahead;
    if (at < first_step + steps) return {panels[panel], at};
    return {next[panel], at - steps};
  }
};

/// Registers: sums [row tile][panel], then operands: those of rows, then those of panels.
template <int kRows, int kPanels>
struct Registers {
  static constexpr int kFirstA = kRows * kPanels, kFirstB = kFirstA + kRows;
  static_assert(kFirstB + kPanels <= kTileRegisters);
  static constexpr int Sum(int row, int panel) { return row * kPanels + panel; }
  static constexpr int A(int row) { return kFirstA + row; }
  static constexpr int B(int panel) { return kFirstB + panel; }
};

/// Fetches, in this step, a part of what other groups will read.
inline __attribute__((always_inline)) void PrefetchPart(const Ahead& ahead, int step) {
  const std::uint8_t* from = ahead.at + static_cast<std::ptrdiff_t>(step) * ahead.lines * 64;
  for (int i = 0; i < ahead.lines; ++i) __builtin_prefetch(from + 64 * i, 0, 2);
}

/// Fetches a tile of weights that a single group needs soon, into the L1: a core has few lines on their way, each
/// of which takes a place until it is there, and with the next pair's on their way those of this one wait. (32 rows,
/// from memory, us: nothing fetched, a pair ahead into the L2, 24 steps and 2 steps ahead into the L1. 16 threads of
/// a shared Xeon, 4096 x 4096: 374, 368, 305, 260; n = 16384, k = 2048: 539, 979, 577, 511; n = 3072, k = 576: 55,
/// 59, 53, 47. Two threads, 16384 x 2048: 4,665, 4,834, 3,586, 3,369. From the L2, 4096 x 4096: 177, 201, 206, 192.)
inline __attribute__((always_inline)) void PrefetchTile(const StepAhead& ahead) {
  const std::uint8_t* tile =
      ahead.panel + static_cast<std::size_t>(ahead.step) * static_cast<std::size_t>(kStepBytes);
  for (int row = 0; row < kTileRowCount; ++row)
    __builtin_prefetch(tile + row * kTileRowBytes, 0, 3);
}

/// One step of k. Addresses are values, since a load of one would queue behind those of tiles.
template <Operand kOperand, int kRows, int kPanels, class Weights, class Tiles>
struct Step {
  using R = Registers<kRows, kPanels>;
  Tiles& tiles;
  const std::uint8_t* a[2];  ///< by row tile

  template <int kRow>
  inline __attribute__((always_inline)) void LoadA() {
    if constexpr (kRow < kRows) {
      tiles.template LoadOnce<R::A(kRow)>(a[kRow], kTileRowBytes);
      Space();
    }
  }
  template <int kPanel>
  inline __attribute__((always_inline)) void LoadB(const std::uint8_t* b) {
    if constexpr (kPanel < kPanels) {
      tiles.template Load<R::B(kPanel)>(b, kTileRowBytes);
      Space();
    }
  }
  template <int kRow, int kPanel>
  inline __attribute__((always_inline)) void Dot() {
    if constexpr (kRow < kRows && kPanel < kPanels) {
      if constexpr (kOperand != Operand::kB) {
        tiles.template DotBF16<R::Sum(kRow, kPanel), R::A(kRow), R::B(kPanel)>();
      } else {
        tiles.template DotBF16<R::Sum(kRow, kPanel), R::B(kPanel), R::A(kRow)>();
      }
      // Nothing reads rows after their product with the last panel, nor a panel after that with the last rows.
      if constexpr (kPanel == kPanels - 1) tiles.template Free<R::A(kRow)>();
      if constexpr (kRow == kRows - 1) tiles.template Free<R::B(kPanel)>();
      Space();
    }
  }
  /// Unpacking is room enough.
  inline __attribute__((always_inline)) void Space() {
    if constexpr (!kUnpacks<Weights>) tiles.Space();
  }
};

template <Operand kOperand, int kRows, int kPanels, class Weights, class Tiles>
__attribute__((noinline)) void Multiply(Tiles& tiles, const Group& group) {
  constexpr int kSums = kRows * kPanels;
  const int steps = group.steps, a_shift = group.a_shift, b_mask = group.b_mask;
  const std::size_t b_step_bytes = group.b_step_bytes;
  const std::uint8_t* const a0 = group.a;
  const std::uint8_t* const a1 = a0 + group.a_tile_bytes;
  const std::uint8_t* const b0 = group.b[0];
  const std::uint8_t* const b1 = group.b[kPanels - 1];
  if (group.first) {
    Repeat<kSums>([&]<int kSum>() { tiles.template Zero<kSum>(); });
  } else {
    Repeat<kSums>([&]<int kSum>() {
      tiles.template Load<kSum>(group.sums + kSum * kSumsOfTile, kTileRowBytes);
    });
  }
  Weights weights;  // of the panel that is unpacked
  const auto unpack = [&]<int kHalf>(int panel, int step) __attribute__((always_inline)) {
    if constexpr (kHalf == 0) {
      weights.Begin(group.panels[panel], group.k, group.first_step + step);
      Weights::Prefetch(group.StepAfter(panel, step), group.k);
    }
    weights.template Put<kHalf>(group.unpacked[panel] + group.StepAt(step));
  };
  if constexpr (kUnpacks<Weights>) {
    for (int p = 0; p < kPanels; ++p)
      unpack.template operator()<0>(p, 0), unpack.template operator()<1>(p, 0);
  }
  // Loads of tiles apart from each other, since each fills the queue of loads: all four between two
  // unpackings took 40 of 196 cycles, two and two 20.
  const auto multiply = [&]<bool kUnpacksNext>(int step) __attribute__((always_inline)) {
    const std::size_t at_a = static_cast<std::size_t>(step >> a_shift) * kStepBytes;
    const std::size_t at_b = static_cast<std::size_t>(step & b_mask) * b_step_bytes;
    Step<kOperand, kRows, kPanels, Weights, Tiles> now{tiles, {a0 + at_a, a1 + at_a}};
    PrefetchPart(group.rows, step);
    if constexpr (!kUnpacks<Weights>) {
      for (int p = 0; p < kPanels; ++p) {
        if (group.steps_ahead > 0) {
          PrefetchTile(group.StepAfter(p, step));
        } else {
          PrefetchPart(group.tiles[p], step);
        }
      }
    }
    const auto unpack_next = [&]<int kPanel, int kHalf>() __attribute__((always_inline)) {
      if constexpr (kUnpacksNext && kPanel < kPanels)
        unpack.template operator()<kHalf>(kPanel, step + 1);
    };
    unpack_next.template operator()<0, 0>();
    now.template LoadA<0>();
    unpack_next.template operator()<0, 1>();
    now.template LoadB<0>(b0 + at_b);
    now.template Dot<0, 0>();
    unpack_next.template operator()<1, 0>();
    now.template LoadB<1>(b1 + at_b);
    now.template Dot<0, 1>();
    unpack_next.template operator()<1, 1>();
    now.template LoadA<1>();
    now.template Dot<1, 0>();
    now.template Dot<1, 1>();
  };
  for (int step = 0; step + 1 < steps; ++step)
    multiply.template operator()<kUnpacks<Weights>>(step);
  multiply.template operator()<false>(steps - 1);
  Repeat<kSums>([&]<int kSum>() {
    tiles.template Store<kSum>(group.sums + kSum * kSumsOfTile, kTileRowBytes);
  });
}

template <Operand kOperand, class Weights, class Tiles>
void MultiplyGroup(Tiles& tiles, const Group& group, int row_tiles, int panels) {
  const auto run = [&]<int kRows, int kPanels>() {
    if (group.unpacks) {
      Multiply<kOperand, kRows, kPanels, Weights>(tiles, group);
    } else {
      Multiply<kOperand, kRows, kPanels, InPlace>(tiles, group);
    }
  };
  static_assert(kGroupTiles == 2 && kGroupPanels == 2);
  if (panels == 2) {
    if (row_tiles == 2) return run.template operator()<2, 2>();
    return run.template operator()<1, 2>();
  }
  if (row_tiles == 2) return run.template operator()<2, 1>();
  run.template operator()<1, 1>();
}

// ---- D ----

/// One vector of D = alpha * sums (+ beta * C); gated: silu of the first panel's times the second's.
inline void StoreRow(const PanelTask& task, int row, int column, F value) {
  const int left = task.columns - column;
  if (left <= 0) return;
  const int count = left < kColumns ? left : kColumns;
  if (task.beta != 0.0f) {
    const F c = Vec::LoadPart(task.c + row * task.ldc + column, count);
    value = Vec::Fma(c, Vec::Set(task.beta), value);
  }
  Vec::StorePart(task.d + row * task.ldd + column, value, count);
}

/// Lines of D that are asked for ahead of their row.
constexpr int kRowsAhead = 4;

void TransposeInPlace(float* sums) {
  alignas(64) float transposed[kSumsOfTile];
  Vec::TransposeSums(sums, transposed);
  __builtin_memcpy(sums, transposed, sizeof transposed);
}

/// Writes all rows of columns from panel `first` of the run on, `panels` of them, from `sums`: by
/// pair of panels as Group::sums. Lines of D that follow each other are written one after the other;
/// two of each row at a time took a fifth of all with 512 rows, since each row is a page of its own.
template <Operand kOperand>
void StoreRun(const PanelTask& task, float* sums, int first, int panels) {
  const F alpha = Vec::Set(kOperand == Operand::kQuads ? kQuadsDown * task.alpha : task.alpha);
  const int tiles = CeilDiv(task.rows, kTileRowCount);
  const int outputs = task.gated ? panels / 2 : panels,
            first_output = task.gated ? first / 2 : first;
  for (int tile = 0; tile < tiles; ++tile) {
    // Of a pair, the two tiles of this row tile; of a last panel alone, one.
    const auto of_pair = [&](int panel) {
      const int width = panels - panel < kGroupPanels ? panels - panel : kGroupPanels;
      return sums + (panel * tiles + tile * width) * kSumsOfTile;
    };
    if (kOperand == Operand::kB) {
      for (int panel = 0; panel < panels; ++panel)
        TransposeInPlace(of_pair(panel / 2 * 2) + panel % 2 * kSumsOfTile);
    }
    for (int line = 0; line < kTileRowCount; ++line) {
      const int row = tile * kTileRowCount + line;
      if (row >= task.rows) return;
      if (row + kRowsAhead < task.rows) {
        const float* ahead = task.d + (row + kRowsAhead) * task.ldd + first_output * kColumns;
        for (int i = 0; i < outputs; ++i) __builtin_prefetch(ahead + i * kColumns, 1, 3);
      }
      for (int panel = 0; panel < panels; panel += kGroupPanels) {
        const float* at = of_pair(panel) + line * kColumns;
        const F one = Vec::Mul(Vec::LoadPart(at, kColumns), alpha);
        if (panel + 1 == panels) {
          StoreRow(task, row, (first + panel) * kColumns, one);
          continue;
        }
        const F other = Vec::Mul(Vec::LoadPart(at + kSumsOfTile, kColumns), alpha);
        if (task.gated) {
          StoreRow(task, row, (first + panel) / 2 * kColumns,
                   Vec::Mul(gemm_int8::Silu(one), other));
        } else {
          StoreRow(task, row, (first + panel) * kColumns, one);
          StoreRow(task, row, (first + panel + 1) * kColumns, other);
        }
      }
    }
  }
}

// ---- a task ----

/// Row tiles of group g of `groups`, as even as they go: [FirstOf(g), FirstOf(g + 1)).
struct RowGroups {
  int tiles, groups;
  explicit RowGroups(int rows)
      : tiles(CeilDiv(rows, kTileRowCount)), groups(CeilDiv(tiles, kGroupTiles)) {}
  int FirstOf(int group) const { return tiles * group / groups; }
};

/// A task by one thread.
template <Operand kOperand, class Weights, class Tiles>
class TaskRun {
 public:
  explicit TaskRun(const PanelTask& task)
      : task_(task),
        rows_(task.rows),
        steps_(task.steps << Weights::kAShift),
        chunked_(steps_ > task.chunk_steps) {}

  void Run() {
    auto* all_sums = reinterpret_cast<float*>(task_.scratch + UnpackedBytes(task_.chunk_steps));
    for (int step = 0; step < steps_; step += task_.chunk_steps) {
      for (int first = 0; first < task_.panels; first += kStoredPanels) {
        const int left = task_.panels - first;
        const int panels = left < kStoredPanels ? left : kStoredPanels;
        float* sums = chunked_ ? all_sums + first * rows_.tiles * kSumsOfTile : all_sums;
        for (int panel = 0; panel < panels; panel += kGroupPanels)
          MultiplyPair(first + panel, step, sums + panel * rows_.tiles * kSumsOfTile);
        if (step + task_.chunk_steps >= steps_) StoreRun<kOperand>(task_, sums, first, panels);
      }
    }
  }

 private:
  int StepsFrom(int step) const {
    return steps_ - step < task_.chunk_steps ? steps_ - step : task_.chunk_steps;
  }
  const std::uint8_t* PanelAt(int panel) const {
    return task_.b + static_cast<std::size_t>(panel) * task_.panel_bytes;
  }
  /// The activations of all rows of the task over the chunk that begins at `step`, and their bytes.
  const std::uint8_t* RowsAt(int step) const {
    return task_.a + static_cast<std::size_t>(step >> Weights::kAShift) *
                         static_cast<std::size_t>(rows_.tiles) * kStepBytes;
  }
  int RowBytes(int step) const {
    return rows_.tiles * (StepsFrom(step) >> Weights::kAShift) * kStepBytes;
  }

  /// A pair of panels, or the last one alone, over the chunk from `step` on of all rows.
  /// Sums go to `sums`, [row tile][panel][16][16].
  void MultiplyPair(int panel, int step, float* sums) {
    const int panels = task_.panels - panel < kGroupPanels ? task_.panels - panel : kGroupPanels;
    Group group;
    group.a_shift = Weights::kAShift;
    group.steps = StepsFrom(step);
    group.a_tile_bytes = static_cast<std::size_t>(group.steps >> Weights::kAShift) * kStepBytes;
    group.first = step == 0;
    group.k = task_.k, group.first_step = step;
    // The pair after this one, or the first of the next chunk.
    const bool wraps = chunked_ && panel + kGroupPanels >= task_.panels;
    group.next_step = wraps ? step + group.steps : step;
    for (int p = 0; p < panels; ++p) {
      group.panels[p] = PanelAt(panel + p);
      group.next[p] = PanelAt(wraps ? p : panel + kGroupPanels + p);
      group.unpacked[p] = task_.scratch + p * kStepBytes;
      group.b[p] = kUnpacks<Weights>
                       ? group.unpacked[p]
                       : group.panels[p] + static_cast<std::size_t>(step) * kStepBytes;
    }
    group.unpacks = kUnpacks<Weights>;
    group.b_step_bytes = kStepBytes;
    if (kUnpacks<Weights>) {
      group.b_step_bytes *= static_cast<std::size_t>(panels);
      if (rows_.groups == 1 && steps_ >= kRingSteps) group.b_mask = kRingSteps - 1;
    }
    if (!chunked_ && (kUnpacks<Weights> || rows_.groups == 1))
      group.steps_ahead = task_.steps_ahead < steps_ ? task_.steps_ahead : steps_;
    // After the last chunk the next run begins with the first one.
    const int next = step + group.steps < steps_ ? step + group.steps : 0;
    const int pairs = CeilDiv(task_.panels, kGroupPanels);
    const bool fetches = !kUnpacks<Weights> && rows_.groups > 1;
    for (int g = 0; g < rows_.groups; ++g) {
      const int first_tile = rows_.FirstOf(g);
      group.a = RowsAt(step) + static_cast<std::size_t>(first_tile) * group.a_tile_bytes;
      group.sums = sums + first_tile * panels * kSumsOfTile;
      if (chunked_) {
        group.rows =
            Ahead::Part(RowsAt(next), RowBytes(next), panel / kGroupPanels * rows_.groups + g,
                        pairs * rows_.groups, group.steps);
      }
      for (int p = 0; fetches && p < panels; ++p) {
        group.tiles[p] =
            Ahead::Part(group.next[p] + static_cast<std::size_t>(group.next_step) * kStepBytes,
                        StepsFrom(step) * kStepBytes, g, rows_.groups, group.steps);
      }
      MultiplyGroup<kOperand, Weights>(tiles_, group, rows_.FirstOf(g + 1) - first_tile, panels);
      group.unpacks = false, group.steps_ahead = 0;  // the first group has fetched for all
    }
  }

  Tiles tiles_{TileConfig{}};
  const PanelTask& task_;
  const RowGroups rows_;
  const int steps_;
  const bool chunked_;
};

template <Operand kOperand, class Weights, class Tiles>
void RunTask(const PanelTask& task) {
  TaskRun<kOperand, Weights, Tiles>(task).Run();
}

// ---- operands ----

/// Tiles of packed activations whose lines are asked for ahead, to be written. Most of them are in the
/// caches of the cores that multiplied by what was there before, and a store waits until those have given
/// its line up. (With this and lines of D alike, in turn on 16 threads of two shared hosts: SmolLM2's prompt
/// 5 and 11 % faster; Llama-3.2-1B's alike within its spread.)
constexpr int kTilesAhead = 4;

/// put(step, count, tile) packs `count` <= kStepK of k, for all steps.
template <class Put>
inline __attribute__((always_inline)) void PackSteps(int k, std::uint8_t* tiles, Put put) {
  const int steps = CeilDiv(k, kStepK);
  const auto ask_for = [&](int step) {
    if (step >= steps) return;
    for (int row = 0; row < kTileRowCount; ++row)
      __builtin_prefetch(tiles + step * kStepBytes + row * kTileRowBytes, 1, 3);
  };
  for (int step = 0; step < kTilesAhead; ++step) ask_for(step);
  for (int step = 0; step < steps; ++step) {
    ask_for(step + kTilesAhead);
    const int left = k - step * kStepK;
    put(step, left < kStepK ? left : kStepK, tiles + step * kStepBytes);
  }
}

template <Operand kOperand>
void PackRows(const float* a, std::int64_t lda, int rows, int k, std::uint8_t* tiles) {
  PackSteps(k, tiles, [&](int step, int count, std::uint8_t* tile) {
    for (int row = 0; row < kTileRowCount; ++row) {
      const float* from = row < rows ? a + row * lda + step * kStepK : nullptr;
      std::uint8_t* to = tile + row * kTileRowBytes;
      if constexpr (kOperand == Operand::kQuads) {
        Vec::StoreQuads(to, from, count);
      } else {
        Vec::StoreBF16(to, from, count);
      }
    }
  });
}

void PackPairs(const float* a, std::int64_t lda, int rows, int k, std::uint8_t* tiles) {
  PackSteps(k, tiles, [&](int step, int count, std::uint8_t* tile) {
    Vec::PackPairs(a + step * kStepK, lda, rows, count, tile);
  });
}

template <class Tiles, class Block>
constexpr TileOps::Weights BlocksOf() {
  if constexpr (!gemm_int8::HasInt8(Block::kFormat)) {
    return {};
  } else if constexpr (gemm_int8::kThroughF16<Block>) {
    return {Operand::kQuads, &RunTask<Operand::kQuads, gemm_int8::F16Quads<Block>, Tiles>};
  } else if constexpr (PanelCodeBits(Block::kFormat) == 4) {
    return {Operand::kB, &RunTask<Operand::kB, gemm_int8::TableRows<Block>, Tiles>};
  } else {
    return {Operand::kA, &RunTask<Operand::kA, gemm_int8::AffinePairs<Block>, Tiles>};
  }
}

template <class Tiles, class... Blocks>
constexpr TileOps MakeTileOps(const char* tu, BlockList<Blocks...>) {
  TileOps ops = {tu, {&PackRows<Operand::kA>, &PackPairs, &PackRows<Operand::kQuads>}, {}};
  const auto put = [&](DataType type, TileOps::Weights weights) {
    ops.weights[IndexOf(type)] = weights;
  };
  put(DataType::kBF16, {Operand::kA, &RunTask<Operand::kA, InPlace, Tiles>});
  put(DataType::kF16, {Operand::kA, &RunTask<Operand::kA, gemm_int8::F16Parts, Tiles>});
  (put(Blocks::kFormat.type, BlocksOf<Tiles, Blocks>()), ...);
  return ops;
}

}  // namespace
}  // namespace tilewright::gemm_amx
