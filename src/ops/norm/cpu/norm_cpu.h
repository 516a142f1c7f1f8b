#pragma once

#include <cstdint>

#include "core/row_conversions.h"

namespace tilewright {

/// One row, in order. `out` may be `in` where they are of one type. Reads and writes exactly `cols`
/// elements; no alignment needed.
using NormRowFunction = void (*)(const void* in, const float* weight, void* out, std::int64_t cols,
                                 float epsilon);

/// RMS norm for one instruction set.
struct NormImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_element;       ///< one thread, data in the L2
  NormRowFunction rows[3][3];  ///< [in][out] by RowTypeIndex
  /// sum = a + b, `cols` elements; sum may be a or b.
  void (*add)(const float* a, const float* b, float* sum, std::int64_t cols);
};

extern const NormImpl kNormScalar;
extern const NormImpl kNormAvx2;
extern const NormImpl kNormAvx512;

}  // namespace tilewright
