#pragma once

#include <cstdint>

#include "tilewright/types.h"

namespace tilewright {

/// Decoding of one row of a table for one instruction set.
struct GatherImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_element;  ///< one thread, data in the L2
  /// `count` values of f32, f16, bf16, q4_0, q4_1, q8_0 or q6_k, a multiple of the block, to f32: bit for bit what
  /// core/block_format.h gives. No alignment needed.
  void (*row)(DataType type, const void* src, float* out, std::int64_t count);
};

extern const GatherImpl kGatherScalar;
extern const GatherImpl kGatherAvx2;
extern const GatherImpl kGatherAvx512;

}  // namespace tilewright
