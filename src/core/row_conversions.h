#pragma once

#include <cstdint>

#include "tilewright/types.h"

namespace tilewright {

/// `n` elements of one format into another; touches exactly n of each; `in` and `out` do not
/// overlap; aligned to their elements only.
using ConvertRow = void (*)(const void* in, void* out, std::int64_t n);

/// Index into RowConversions::convert, -1 for types that are not in it.
constexpr int RowTypeIndex(DataType type) {
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

/// The conversions of one instruction set, for operations whose kernels compute in f32 and read or
/// write another type. The bits are those of core/numeric.h and EncodeRow.
struct RowConversions {
  ConvertRow between[3][3];  ///< [from][to] by RowTypeIndex; nullptr on the diagonal
  ConvertRow encode_q8_0;    ///< f32 to q8_0, n a multiple of 32
  ConvertRow encode_i8x32;   ///< f32 to i8x32, n a multiple of 32

  /// nullptr where nothing is to convert or no row of the table does it.
  ConvertRow Find(DataType from, DataType to) const {
    if (from == DataType::kF32 && to == DataType::kQ8_0) return encode_q8_0;
    if (from == DataType::kF32 && to == DataType::kI8X32) return encode_i8x32;
    const int row = RowTypeIndex(from), column = RowTypeIndex(to);
    return row < 0 || column < 0 ? nullptr : between[row][column];
  }
};

}  // namespace tilewright
