#pragma once

// Where a k-tile of W and x lies in shared memory, for the kernel of gemm_q and for the host, which
// asks for the room it takes. Plain C++.

#include "ops/gemm/cuda/gemv/segment.h"
#include "tilewright/cuda/gemm_q_params.h"

namespace tw {

/// Bytes from row to row of x: 256 values of 16 bits, and 32 more, so that four rows of 32 bytes
/// that half a warp reads are in different banks.
inline constexpr int kGemmQXPitch = 2 * kGemvSpan + 32;

/// The sizes of a stage of the ring, and of the sums that take its place, in bytes and (kSumPitch)
/// floats.
template <int kBlockBytes, int kBlockElements, int kTileM, int kTileN>
struct GemmQTile {
  static constexpr int kWPitch = GemvSegmentBytes(1, kBlockBytes, kBlockElements);
  static constexpr int kXPitch = kGemmQXPitch;
  static constexpr int kWBytes = kTileN * kWPitch;
  static constexpr int kStageBytes = kWBytes + kTileM * kXPitch;
  // Rows 0, 2, 4 and 6 of x in four groups of eight banks: what a warp stores at a time.
  static constexpr int kSumPitch = kTileN + 4;
};

/// The same, of values: bytes of dynamic shared memory.
constexpr int GemmQSmemBytes(int block_bytes, int block_elements, int tile_m, int tile_n, int parts,
                             int stages) {
  const int ring =
      stages * (tile_n * GemvSegmentBytes(1, block_bytes, block_elements) + tile_m * kGemmQXPitch);
  const int sums = parts * tile_m * (tile_n + 4) * 4;
  return ring > sums ? ring : sums;
}

}  // namespace tw
