#pragma once

#include <cstdint>

#include "core/row_conversions.h"

namespace tilewright {

/// The `k` best of a row, best first, as the operation orders them: how many there are, at most k;
/// -1 for a row that has no order. Reads exactly `cols` elements; no alignment needed. `values` and
/// `ids` have room for k.
using TopKRowFunction = int (*)(const void* in, std::int64_t cols, int k, float* values,
                                std::int32_t* ids);

/// Top-k for one instruction set.
struct TopKImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_element;    ///< one thread, data in the L2, k = 1
  TopKRowFunction rows[3];  ///< [in] by RowTypeIndex
};

extern const TopKImpl kTopKScalar;
extern const TopKImpl kTopKAvx2;
extern const TopKImpl kTopKAvx512;

}  // namespace tilewright
