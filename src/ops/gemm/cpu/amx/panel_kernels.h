#pragma once

#include <utility>

#include "device/cpu/tiles.h"
#include "ops/gemm/cpu/amx/tile_ops.h"
#include "ops/gemm/cpu/amx/unpack.h"
#include "ops/gemm/cpu/int8/epilogue.h"

/// The kernel, written once over the tiles `Tiles` (device/cpu/tiles.h) and the vector type `Vec`
/// that each kernel file defines before including this header. Everything lives in an unnamed
/// namespace.
///
/// Every element of D is one chain of tile products over ascending k, whatever the rows, panels and
/// chunks around it: results depend on their row of A and their column of B alone.
///
/// Blocking. Sums of 3 x 2 tiles stay in registers; the two left hold an operand each. A pair of
/// panels is unpacked while the first group of row tiles multiplies, one step of k ahead of it, so
/// that the vector units work while the tile unit does, and for the other groups lies in the L2
/// afterwards.

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

/// Writes one step of a packed panel as a tile.
using Unpack = void (*)(const std::uint8_t* panel, int k, int step, std::uint8_t* out);

/// How weights become tiles.
struct Weights {
  Unpack unpack = nullptr;  ///< nullptr where they lie as tiles
  int a_shift = 0;          ///< 1 where the unpacked weights take two steps for each step of k
};

/// Steps that the unpacked weights of a single group of row tiles need: one is multiplied, one
/// written, and a store needs some time to leave for the cache.
constexpr int kRingSteps = 4;

/// Some row tiles times one or two panels over a chunk of k.
struct Group {
  const std::uint8_t* a = nullptr;           ///< first row tile, at k = 0
  int a_shift = 0;                           ///< 1 where two steps of weights share one of A
  std::size_t a_tile_bytes = 0;              ///< between row tiles
  const std::uint8_t* b[kGroupPanels] = {};  ///< tile of the first step of each panel
  std::size_t b_step_bytes = 0;              ///< between steps
  int b_mask = -1;                           ///< step s lies at s & b_mask
  int steps = 0;
  float* sums = nullptr;    ///< [row tile][panel][16][16], written, and read unless `first`
  bool first = true;        ///< the chunk is the first
  Unpack unpack = nullptr;  ///< what fills b[], where the weights are not unpacked yet
  std::uint8_t* unpacked[kGroupPanels] = {};
  const std::uint8_t* panels[kGroupPanels] = {};
  int k = 0, first_step = 0;  ///< of the panels; where the chunk begins

  std::size_t StepAt(int step) const {
    return static_cast<std::size_t>(step & b_mask) * b_step_bytes;
  }
};

/// Registers: sums [row tile][panel], then operands. Where there are enough, A's tiles keep theirs
/// over the panels.
template <int kRows, int kPanels>
struct Registers {
  static constexpr bool kKeepsA = kRows * kPanels + kRows + 1 <= kTileRegisters;
  static constexpr int kFirstA = kRows * kPanels;
  static constexpr int kB = kFirstA + (kKeepsA ? kRows : 1);
  static constexpr int Sum(int row, int panel) { return row * kPanels + panel; }
  static constexpr int A(int row) { return kFirstA + (kKeepsA ? row : 0); }
};

template <int kRows, int kPanels, bool kUnpacks, class Tiles>
__attribute__((noinline)) void Multiply(Tiles& tiles, const Group& group) {
  using R = Registers<kRows, kPanels>;
  Repeat<kRows>([&]<int kRow>() {
    Repeat<kPanels>([&]<int kPanel>() {
      constexpr int kSum = R::Sum(kRow, kPanel);
      if (group.first) {
        tiles.template Zero<kSum>();
      } else {
        tiles.template Load<kSum>(group.sums + kSum * kSumsOfTile, kTileRowBytes);
      }
    });
  });
  if constexpr (kUnpacks) {
    for (int p = 0; p < kPanels; ++p)
      group.unpack(group.panels[p], group.k, group.first_step, group.unpacked[p]);
  }
  for (int step = 0; step < group.steps; ++step) {
    const std::uint8_t* a =
        group.a + static_cast<std::size_t>((group.first_step + step) >> group.a_shift) * kStepBytes;
    Repeat<kPanels>([&]<int kPanel>() {
      if constexpr (kUnpacks) {
        if (step + 1 < group.steps) {
          group.unpack(group.panels[kPanel], group.k, group.first_step + step + 1,
                       group.unpacked[kPanel] + group.StepAt(step + 1));
        }
      }
      tiles.template Load<R::kB>(group.b[kPanel] + group.StepAt(step), kTileRowBytes);
      Repeat<kRows>([&]<int kRow>() {
        if constexpr (kPanel == 0 || !R::kKeepsA)
          tiles.template Load<R::A(kRow)>(a + kRow * group.a_tile_bytes, kTileRowBytes);
        tiles.template DotBF16<R::Sum(kRow, kPanel), R::A(kRow), R::kB>();
      });
    });
  }
  Repeat<kRows * kPanels>([&]<int kSum>() {
    tiles.template Store<kSum>(group.sums + kSum * kSumsOfTile, kTileRowBytes);
  });
}

template <class Tiles>
void MultiplyGroup(Tiles& tiles, const Group& group, int row_tiles, int panels) {
  const auto run = [&]<int kRows, int kPanels>() {
    if (group.unpack != nullptr) {
      Multiply<kRows, kPanels, true>(tiles, group);
    } else {
      Multiply<kRows, kPanels, false>(tiles, group);
    }
  };
  static_assert(kGroupTiles == 3 && kGroupPanels == 2);
  if (panels == 2) {
    if (row_tiles == 3) return run.template operator()<3, 2>();
    if (row_tiles == 2) return run.template operator()<2, 2>();
    return run.template operator()<1, 2>();
  }
  if (row_tiles == 3) return run.template operator()<3, 1>();
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

/// Writes the rows of `row_tiles` tiles from `first_row`, columns from `panel` of the run.
void Finish(const PanelTask& task, const float* sums, int first_row, int panel, int panels) {
  const F alpha = Vec::Set(task.alpha);
  const int last = first_row + kGroupTiles * kTileRowCount;
  const int end = last < task.rows ? last : task.rows;
  for (int row = first_row; row < end; ++row) {
    const int tile = (row - first_row) / kTileRowCount, line = (row - first_row) % kTileRowCount;
    const float* at = sums + (tile * panels * kTileRowCount + line) * kColumns;
    const F first = Vec::Mul(Vec::LoadPart(at, kColumns), alpha);
    if (panels == 1) {
      StoreRow(task, row, panel * kColumns, first);
      continue;
    }
    const F second = Vec::Mul(Vec::LoadPart(at + kSumsOfTile, kColumns), alpha);
    if (task.gated) {
      StoreRow(task, row, panel / 2 * kColumns, Vec::Mul(gemm_int8::Silu(first), second));
    } else {
      StoreRow(task, row, panel * kColumns, first);
      StoreRow(task, row, (panel + 1) * kColumns, second);
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

/// A pair of panels, or the last one alone, over steps first_step .. of all rows of the task.
template <class Tiles>
void MultiplyPair(Tiles& tiles, const PanelTask& task, const Weights& weights, int panel,
                  int first_step) {
  const Unpack unpack = weights.unpack;
  const int steps = task.steps << weights.a_shift;
  const RowGroups rows(task.rows);
  const int panels = task.panels - panel < kGroupPanels ? task.panels - panel : kGroupPanels;
  const bool chunked = steps > task.chunk_steps;
  auto* all_sums = reinterpret_cast<float*>(task.scratch + UnpackedBytes(task.chunk_steps));
  Group group;
  group.a_tile_bytes = static_cast<std::size_t>(task.steps) * kStepBytes;
  group.a_shift = weights.a_shift;
  group.steps = steps - first_step < task.chunk_steps ? steps - first_step : task.chunk_steps;
  group.first = first_step == 0;
  group.k = task.k, group.first_step = first_step;
  const bool last = first_step + group.steps == steps;
  for (int p = 0; p < panels; ++p) {
    group.panels[p] = task.b + static_cast<std::size_t>(panel + p) * task.panel_bytes;
    group.unpacked[p] = task.scratch + p * kStepBytes;
    group.b[p] = unpack == nullptr
                     ? group.panels[p] + static_cast<std::size_t>(first_step) * kStepBytes
                     : group.unpacked[p];
  }
  group.b_step_bytes = static_cast<std::size_t>(unpack == nullptr ? 1 : panels) * kStepBytes;
  group.unpack = unpack;
  if (unpack != nullptr && rows.groups == 1 && task.chunk_steps >= kRingSteps)
    group.b_mask = kRingSteps - 1;
  for (int g = 0; g < rows.groups; ++g) {
    const int first_tile = rows.FirstOf(g), row_tiles = rows.FirstOf(g + 1) - first_tile;
    group.a = task.a + static_cast<std::size_t>(first_tile) * group.a_tile_bytes;
    // Between chunks every group of every pair keeps its sums; else they go to D at once.
    group.sums = all_sums;
    if (chunked) group.sums += (panel * rows.tiles + first_tile * panels) * kSumsOfTile;
    MultiplyGroup(tiles, group, row_tiles, panels);
    group.unpack = nullptr;
    if (last) {
      PanelTask part = task;
      part.rows = (first_tile + row_tiles) * kTileRowCount < task.rows
                      ? (first_tile + row_tiles) * kTileRowCount
                      : task.rows;
      Finish(part, group.sums, first_tile * kTileRowCount, panel, panels);
    }
  }
}

template <class Tiles>
void RunTask(const PanelTask& task, const Weights& weights) {
  Tiles tiles{TileConfig{}};
  for (int step = 0; step < task.steps << weights.a_shift; step += task.chunk_steps) {
    for (int panel = 0; panel < task.panels; panel += kGroupPanels)
      MultiplyPair(tiles, task, weights, panel, step);
  }
}

// ---- operands ----

/// bf16 weights lie as tiles already.
template <class Tiles>
void MultiplyBF16(const PanelTask& task) {
  RunTask<Tiles>(task, {});
}

template <class Tiles>
void MultiplyF16(const PanelTask& task) {
  RunTask<Tiles>(task, {.unpack = &gemm_int8::UnpackF16, .a_shift = 1});
}

template <class Tiles, class Block>
void MultiplyBlocks(const PanelTask& task) {
  RunTask<Tiles>(task, {.unpack = &gemm_int8::UnpackStep<Block>});
}

void Pack(const float* a, std::int64_t lda, int rows, int k, std::uint8_t* tile) {
  const int steps = CeilDiv(k, kStepK);
  for (int step = 0; step < steps; ++step, tile += kStepBytes) {
    const int left = k - step * kStepK;
    for (int row = 0; row < kTileRowCount; ++row) {
      const float* from = a + row * lda + step * kStepK;
      Vec::StoreBF16(tile + row * kTileRowBytes, row < rows ? from : nullptr,
                     left < kStepK ? left : kStepK);
    }
  }
}

template <class Tiles, class Block>
constexpr void PutBlocks(TileOps& ops) {
  if constexpr (gemm_int8::HasInt8(Block::kFormat))
    ops.multiply[IndexOf(Block::kFormat.type)] = &MultiplyBlocks<Tiles, Block>;
}

template <class Tiles, class... Blocks>
constexpr TileOps MakeTileOps(const char* tu, BlockList<Blocks...>) {
  TileOps ops = {tu, &Pack, {&MultiplyBF16<Tiles>, &MultiplyF16<Tiles>}};
  static_assert(IndexOf(DataType::kBF16) == 0 && IndexOf(DataType::kF16) == 1);
  (PutBlocks<Tiles, Blocks>(ops), ...);
  return ops;
}

}  // namespace
}  // namespace tilewright::gemm_amx
