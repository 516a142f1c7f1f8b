#pragma once

#include <cstdint>

#include "core/row_conversions.h"

namespace tilewright {

/// Rotates `half` pairs of one head by the angles whose cosines and sines are given; `out` may be
/// `in`. Touches 2 * half elements.
using RotateHead = void (*)(const float* in, const float* cosines, const float* sines, float* out,
                            std::int64_t half);

struct RopeImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_element;  ///< one thread, data in the L2
  RotateHead interleaved;
  RotateHead half_split;
  RowConversions rows;  ///< for heads of other types than f32
};

extern const RopeImpl kRopeScalar;
extern const RopeImpl kRopeAvx2;
extern const RopeImpl kRopeAvx512;

}  // namespace tilewright
