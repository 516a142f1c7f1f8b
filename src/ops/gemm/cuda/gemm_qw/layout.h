#pragma once

// Where a k-tile of W and x lies in shared memory, for the kernel of gemm_qw and for the host, which
// asks for the room it takes. Plain C++.

#include "tilewright/cuda/gemm_qw_params.h"

namespace tw {

/// A stage of the ring, and the sums behind it, in bytes and (kSumPitch) floats.
struct GemmQwLayout {
  int line_bytes;  // of a row of W
  int w_bytes, stage_bytes;
  int sum_pitch;
  int sums;      // where they begin, [parts][tile_m][sum_pitch] of f32
  int barriers;  // full[stages], empty[stages], and a word

  static constexpr GemmQwLayout Of(int block_bytes, int block_elements, int tile_m, int tile_n,
                                   int stages) {
    const int line = tilewright::cuda::GemmQwLineBytes(block_bytes, block_elements);
    const int w = tile_n * line;
    const int stage = w + tile_m * tilewright::cuda::kGemmQTileK * 2;
    // Four columns more: rows 0, 2, 4 and 6 of x in four groups of eight banks.
    return {line, w, stage, tile_n + 4, stages * stage, 0};
  }
  constexpr GemmQwLayout WithParts(int tile_m, int parts) const {
    GemmQwLayout all = *this;
    all.barriers = sums + parts * tile_m * sum_pitch * 4;
    return all;
  }
  constexpr int Bytes(int stages) const { return barriers + 16 * stages + 16; }
};

}  // namespace tw
