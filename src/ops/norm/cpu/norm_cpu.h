#pragma once

#include <cstdint>

namespace tilewright {

/// RMS norm for one instruction set.
struct NormImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_element;  ///< one thread, data in the L2
  /// One row, in order. `out` may be `in`. Reads and writes exactly `cols` elements; no alignment
  /// needed.
  void (*row)(const float* in, const float* weight, float* out, std::int64_t cols, float epsilon);
};

extern const NormImpl kNormScalar;
extern const NormImpl kNormAvx2;
extern const NormImpl kNormAvx512;

}  // namespace tilewright
