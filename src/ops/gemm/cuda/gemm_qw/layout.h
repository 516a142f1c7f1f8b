#pragma once

// Where a k-tile of W and x lies in shared memory, for the kernel of gemm_qw and for the host, which
// asks for the room it takes. Plain C++.

#include "tilewright/cuda/gemm_qw_params.h"

namespace tw {

/// What is chosen of a kernel of gemm_qw.
struct GemmQwShape {
  int block_bytes, block_elements;  // of W
  int tile_m, tile_n, parts, stages;
};

/// Shared memory: ring [stages] of { W [tile_n][line_bytes], x [tile_m][256] of f16, what rows of x were
/// divided by [tile_m] of f32, whether any was, a word of each warp that brings x }; the sums of an output tile, [parts][tile_m][sum_pitch] of f32, in place of
/// a stage that has been read or, where they do not fit, behind the ring; full[stages] and empty[stages],
/// barriers, and the largest magnitudes of rows of x, [2][tile_m] of f32. In bytes and floats.
struct GemmQwLayout {
  int line_bytes, w_bytes, divisors, divided, stage_bytes;
  int sum_pitch;
  bool sums_apart;
  int sums;  // where they begin if they are apart
  int barriers, largest, bytes;

  /// Of x and its divisors, which lie side by side.
  constexpr int x_bytes(int tile_m) const { return divisors + tile_m * 4 - w_bytes; }

  static constexpr GemmQwLayout Of(const GemmQwShape& s) {
    GemmQwLayout all{};
    all.line_bytes = tilewright::cuda::GemmQwLineBytes(s.block_bytes, s.block_elements);
    all.w_bytes = s.tile_n * all.line_bytes;
    all.divisors = all.w_bytes + s.tile_m * tilewright::cuda::kGemmQTileK * 2;
    all.divided = all.divisors + s.tile_m * 4;
    all.stage_bytes = (all.divided + 4 * 4 + 127) / 128 * 128;
    // Four columns more: rows 0, 2, 4 and 6 of x in four groups of eight banks.
    all.sum_pitch = s.tile_n + 4;
    const int sum_bytes = s.parts * s.tile_m * all.sum_pitch * 4;
    all.sums_apart = sum_bytes > all.stage_bytes;
    all.sums = s.stages * all.stage_bytes;
    all.barriers = all.sums + (all.sums_apart ? sum_bytes : 0);
    all.largest = all.barriers + 16 * s.stages;
    all.bytes = all.largest + 2 * s.tile_m * 4;
    return all;
  }
};

}  // namespace tw
