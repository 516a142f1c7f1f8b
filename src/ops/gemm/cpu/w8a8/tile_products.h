#pragma once

#include "device/cpu/tiles.h"
#include "ops/gemm/cpu/w8a8/rounding.h"

/// The kernel on tiles, written once over `Tiles` (device/cpu/tiles.h). For kernel files: everything is
/// in an unnamed namespace.

namespace tilewright::gemm_w8a8 {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file

/// kRows x kPanels tiles, whose sums stay in registers over all of k: sum (r, p) in r * 2 + p, tiles of
/// rows in 4 and 5, of panels in 6 and 7, each of which is freed after its last product.
template <int kRows, int kPanels, class Tiles>
void MultiplyGroup(Tiles& tiles, const Task& task, int row, int first) {
  const std::size_t tile_bytes = TileBytes(task.k), panel_bytes = PanelBytes(task.k);
  const std::uint8_t* a0 = task.a + static_cast<std::size_t>(row / kTileRowCount) * tile_bytes;
  const std::uint8_t* b0 = task.b + static_cast<std::size_t>(first / kColumns) * panel_bytes;
  tiles.template Zero<0>();
  if constexpr (kPanels == 2) tiles.template Zero<1>();
  if constexpr (kRows == 2) tiles.template Zero<2>();
  if constexpr (kRows == 2 && kPanels == 2) tiles.template Zero<3>();
  for (std::size_t at = 0; at < tile_bytes; at += kStepBytes) {
    tiles.template LoadOnce<4>(a0 + at, kTileRowBytes);
    tiles.template Load<6>(b0 + at, kTileRowBytes);
    tiles.template DotI8<0, 4, 6>();
    if constexpr (kPanels == 2) {
      tiles.template Load<7>(b0 + panel_bytes + at, kTileRowBytes);
      tiles.template DotI8<1, 4, 7>();
    }
    tiles.template Free<4>();
    tiles.Space();
    if constexpr (kRows == 2) {
      tiles.template LoadOnce<5>(a0 + tile_bytes + at, kTileRowBytes);
      tiles.template DotI8<2, 5, 6>();
    }
    tiles.template Free<6>();
    tiles.Space();
    if constexpr (kRows == 2 && kPanels == 2) tiles.template DotI8<3, 5, 7>();
    tiles.template Free<5>();
    tiles.template Free<7>();
    tiles.Space();
  }
  alignas(64) std::int32_t sums[4][kTileRowCount][kColumns];
  tiles.template Store<0>(sums[0], kTileRowBytes);
  if constexpr (kPanels == 2) tiles.template Store<1>(sums[1], kTileRowBytes);
  if constexpr (kRows == 2) tiles.template Store<2>(sums[2], kTileRowBytes);
  if constexpr (kRows == 2 && kPanels == 2) tiles.template Store<3>(sums[3], kTileRowBytes);
  for (int r = row; r < row + kRows * kTileRowCount && r < task.rows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      const int tile = (r - row) / kTileRowCount * 2 + p, column = first + p * kColumns;
      StoreRow(sums[tile][(r - row) % kTileRowCount],
               EndOf(b0 + static_cast<std::size_t>(p) * panel_bytes, task.k).scales,
               task.row_scales[r], task.columns - column, task.d + r * task.ldd + column);
    }
  }
}

template <class Tiles>
void MultiplyByTiles(const Task& task) {
  Tiles tiles{TileConfig{}};
  for (int first = 0; first < task.columns; first += 2 * kColumns) {
    const bool pair = task.columns - first > kColumns;
    for (int row = 0; row < task.rows; row += 2 * kTileRowCount) {
      const bool both = task.rows - row > kTileRowCount;
      if (pair && both) {
        MultiplyGroup<2, 2>(tiles, task, row, first);
      } else if (pair) {
        MultiplyGroup<1, 2>(tiles, task, row, first);
      } else if (both) {
        MultiplyGroup<2, 1>(tiles, task, row, first);
      } else {
        MultiplyGroup<1, 1>(tiles, task, row, first);
      }
    }
  }
}

}  // namespace
}  // namespace tilewright::gemm_w8a8
