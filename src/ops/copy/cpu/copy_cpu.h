#pragma once

#include <array>
#include <cstdint>

#include "core/formats/formats.h"
#include "tilewright/types.h"

namespace tilewright {

/// `n` elements of one format into another; touches exactly n of each; `in` and `out` do not
/// overlap; aligned to their elements only.
using ConvertRow = void (*)(const void* in, void* out, std::int64_t n);

/// Index into CopyImpl::convert, -1 for types that are not in it.
constexpr int CopyTypeIndex(DataType type) {
  switch (type) {
    case DataType::kF32:
      return 0;
    case DataType::kF16:
      return 1;
    case DataType::kBF16:
      return 2;
    default:
      return -1;
  }
}

struct CopyImpl {
  const char* isa;
  const char* tu;
  std::uint32_t features;
  double ns_per_element;     ///< one thread, data in the L2
  ConvertRow convert[3][3];  ///< [from][to] by CopyTypeIndex; nullptr on the diagonal
  ConvertRow encode_q8_0;    ///< f32 to q8_0, n a multiple of 32, the bits of EncodeRow
  double ns_per_unpacked;    ///< as ns_per_element, from a block format to f32
  std::array<ConvertRow, kFormatCount> unpack;  ///< to f32, in the order of the list of formats
};

extern const CopyImpl kCopyScalar;
extern const CopyImpl kCopyAvx2;
extern const CopyImpl kCopyAvx512;

}  // namespace tilewright
