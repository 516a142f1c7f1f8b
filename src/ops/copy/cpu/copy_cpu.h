#pragma once

#include <array>
#include <cstdint>

#include "core/formats/formats.h"
#include "core/row_conversions.h"

namespace tilewright {

struct CopyImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_element;  ///< one thread, data in the L2
  RowConversions rows;
  double ns_per_unpacked;                       ///< as ns_per_element, from a block format to f32
  std::array<ConvertRow, kFormatCount> unpack;  ///< to f32, in the order of the list of formats
};

extern const CopyImpl kCopyScalar;
extern const CopyImpl kCopyAvx2;
extern const CopyImpl kCopyAvx512;

}  // namespace tilewright
