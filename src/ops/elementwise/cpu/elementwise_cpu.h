#pragma once

#include <cstdint>

#include "core/row_conversions.h"

namespace tilewright {

/// `n` elements; `out` may be `a` or `b`; touches exactly n elements of each, no alignment needed.
/// Functions of one operand ignore `b`; `parameter` is softcap or limit of the functions that have it.
using ElementwiseRow = void (*)(const float* a, const float* b, float* out, std::int64_t n,
                                float parameter);

struct ElementwiseImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_add;   ///< an element of add or mul, one thread, data in the L2
  double ns_silu;  ///< an element of any other function
  ElementwiseRow add, mul, silu, swiglu, gelu, geglu, softcap, clamped_swiglu;
  RowConversions rows;  ///< for operands of other types than f32
};

extern const ElementwiseImpl kElementwiseScalar;
extern const ElementwiseImpl kElementwiseAvx2;
extern const ElementwiseImpl kElementwiseAvx512;

}  // namespace tilewright
