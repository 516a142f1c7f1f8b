#pragma once

// Segments of rows of weights in shared memory, for the kernel of gemv_q and for the host, which
// asks for the room they take. Plain C++.

#include "tilewright/cuda/gemv_params.h"

namespace tw {

using tilewright::cuda::GemvRowAlignment;

/// Values of a row of weights in blocks that a warp multiplies at a time.
inline constexpr int kGemvSpan = 256;

/// Bytes of `spans` spans of one row in shared memory: chunks of 16 bytes as they lie in global
/// memory, also where the row starts within one; an odd number of them, so that eight rows are in
/// different banks.
constexpr int GemvSegmentBytes(int spans, int block_bytes, int block_elements) {
  const int bytes = spans * (kGemvSpan / block_elements) * block_bytes;
  return ((bytes + 16 - GemvRowAlignment(block_bytes) + 15) / 16 | 1) * 16;
}

}  // namespace tw
