#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "tilewright/cuda/grouped_gemm_params.h"

// Which group the rows of a CTA belong to. Every warp finds it by itself: lanes look at four groups
// each, so that the offsets of 128 are on their way together.

namespace tw {

using tilewright::cuda::GemmGroups;

inline constexpr int kGroupsOfLane = 4;

/// The sum over the 32 lanes, in every lane.
TW_DEVICE int WarpSumOf(int value) {
  TW_UNROLL
  for (int step = 16; step > 0; step /= 2)
    value += static_cast<int>(OfPartner(static_cast<u32>(value), step));
  return value;
}

TW_DEVICE int Clamped(int value, int most) { return value < 0 ? 0 : value > most ? most : value; }

/// Of `rows` rows, the group of row `row`; `groups.count` where the offsets have none for it. All lanes
/// of a warp call it.
TW_DEVICE int GroupOfRow(const GemmGroups& groups, int row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int ended = 0;
  TW_NO_UNROLL
  for (int first = 0; first < groups.count; first += 32 * kGroupsOfLane) {
    TW_UNROLL
    for (int i = 0; i < kGroupsOfLane; ++i) {
      const int group = first + 32 * i + lane;
      if (group < groups.count && groups.offsets[group + 1] <= row) ++ended;
    }
  }
  return WarpSumOf(ended);
}

/// Rows `first` .. `first + rows - 1` of y, all of one group; no rows: there is no such tile.
struct GroupTile {
  int group, first, rows;
};

/// Tile `index` of those of up to `tile_m` of `rows` rows, which no two groups share. All lanes of a
/// warp call it.
TW_DEVICE GroupTile FindGroupTile(const GemmGroups& groups, int rows, int tile_m, int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;           // tiles of the groups in front
  GroupTile mine{0, 0, 0};  // in the one lane that finds it
  TW_NO_UNROLL
  for (int base = 0; base < groups.count; base += 32 * kGroupsOfLane) {
    const int own = base + kGroupsOfLane * lane;
    int begins[kGroupsOfLane + 1];
    TW_UNROLL
    for (int i = 0; i <= kGroupsOfLane; ++i)
      begins[i] = Clamped(own + i <= groups.count ? groups.offsets[own + i] : rows, rows);
    int tiles[kGroupsOfLane], sum = 0;
    TW_UNROLL
    for (int i = 0; i < kGroupsOfLane; ++i) {
      const int of_group = begins[i + 1] - begins[i];
      tiles[i] = own + i < groups.count && of_group > 0 ? (of_group - 1) / tile_m + 1 : 0;
      sum += tiles[i];
    }
    int at = before;  // the first tile of this lane's groups
    TW_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int other = static_cast<int>(OfPartner(static_cast<u32>(sum), step));
      if ((lane & step) != 0) at += other;
      sum += other;
    }
    before += sum;
    TW_UNROLL
    for (int i = 0; i < kGroupsOfLane; ++i) {
      const int tile = index - at;
      at += tiles[i];
      if (tile < 0 || tile >= tiles[i]) continue;
      const int first = begins[i] + tile * tile_m, left = begins[i + 1] - first;
      mine = {own + i, first, left < tile_m ? left : tile_m};
    }
  }
  return {WarpSumOf(mine.group), WarpSumOf(mine.first), WarpSumOf(mine.rows)};
}

}  // namespace tw
