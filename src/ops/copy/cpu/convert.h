#pragma once

#include <cstdint>

#include "tilewright/types.h"

namespace tilewright {

/// Conversion of `count` adjacent elements for one instruction set. Neither side needs alignment.
struct ConvertImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_element;  ///< one thread, data in the L2
  /// Any of f32, f16 and bf16 to any of them; f32 to q8_0 with count a multiple of 32. False for
  /// another pair.
  bool (*convert)(DataType from, DataType to, const void* src, void* dst, std::int64_t count);
};

extern const ConvertImpl kConvertScalar;
extern const ConvertImpl kConvertAvx2;
extern const ConvertImpl kConvertAvx512;

/// Whether the pair is one that every ConvertImpl has.
bool ConvertTakes(DataType from, DataType to);

}  // namespace tilewright
