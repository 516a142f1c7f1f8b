#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewright/gemm.h"

namespace tilewright {

/// Bytes from the first to the last element of a matrix whose rows (row-major) or columns follow
/// each other `ld` elements apart.
struct Extent {
  const std::byte* first = nullptr;
  const std::byte* last = nullptr;  ///< one beyond
};

inline Extent ExtentOf(const void* data, const MatrixLayout& layout, std::int64_t rows) {
  const bool row_major = layout.order == Order::kRowMajor;
  const std::int64_t lines = row_major ? rows : layout.cols,
                     length = row_major ? layout.cols : rows;
  const auto* first = static_cast<const std::byte*>(data);
  return {first, first + BytesOf(layout.type, layout.ld) * static_cast<std::size_t>(lines - 1) +
                     BytesOf(layout.type, length)};
}
inline Extent ExtentOf(const void* data, const MatrixLayout& layout) {
  return ExtentOf(data, layout, layout.rows);
}

inline bool Overlap(const Extent& x, const Extent& y) {
  return x.first < y.last && y.first < x.last;
}

}  // namespace tilewright
