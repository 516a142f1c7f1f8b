#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "tilewright/rejection.h"
#include "tilewright/tensor.h"

// Strided views as kernels take them, and what launchers check of them.

namespace tilewright::cuda {

/// Rows of `cols` elements that count through three dimensions, the first one innermost.
struct RowSpace {
  std::int64_t cols = 1;
  std::array<std::int64_t, 3> extents{1, 1, 1};

  std::int64_t rows() const { return extents[0] * extents[1] * extents[2]; }
};

/// The distances of a view in a RowSpace, in elements.
struct RowStrides {
  std::int64_t col = 1;
  std::array<std::int64_t, 3> rows{};
};

/// The shape that all of `views` have with as few and as long rows as their strides allow:
/// dimensions are joined where every view steps from one to the next without a gap. `strides` gets
/// those of each view; it has as many places as there are views, one at least.
RowSpace JoinRows(std::span<const TensorView* const> views, std::span<RowStrides> strides);

/// Whether every row, and every step of 16 bytes in it, is at an address that is a multiple of 16.
bool AlignedTo16(const TensorView& view, const RowStrides& strides);

/// nullopt for memory at a multiple of the view's element (of two bytes for block types), all of it
/// at distances of 0 or more; else a rejection that names `operand`. The type is checked too.
std::optional<Rejection> CheckOperand(const char* operand, const TensorView& view, DataType type);
/// The same, and `shape`.
std::optional<Rejection> CheckOperand(const char* operand, const TensorView& view, DataType type,
                                      const std::array<std::int64_t, 4>& shape);

}  // namespace tilewright::cuda
