#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/numeric.h"
#include "tilewright/result.h"
#include "tilewright/tensor.h"

/// Addressing and checking of TensorViews for the code around kernels. Not for kernel files, since
/// these inline functions are shared between translation units.

namespace tilewright {

inline bool IsFloatType(DataType type) {
  return type == DataType::kF32 || type == DataType::kF16 || type == DataType::kBF16 ||
         type == DataType::kF64;
}

/// Number of rows of a view: the product of all dimensions but dimension 0.
inline std::int64_t RowCount(const TensorView& view) {
  return view.shape[1] * view.shape[2] * view.shape[3];
}

/// Offset in elements of row `row`, where rows are counted with dimension 1 innermost.
inline std::int64_t RowOffset(const TensorView& view, std::int64_t row) {
  if (view.shape[2] == 1 && view.shape[3] == 1) return row * view.stride[1];
  const std::int64_t i1 = row % view.shape[1];
  const std::int64_t outer = row / view.shape[1];
  return i1 * view.stride[1] + outer % view.shape[2] * view.stride[2] +
         outer / view.shape[2] * view.stride[3];
}

/// Byte address of element `offset` of a view of a plain or block type; `offset` is a multiple of
/// the block.
inline const unsigned char* AddressOf(const TensorView& view, std::int64_t offset) {
  const TypeInfo& info = GetTypeInfo(view.dtype);
  return static_cast<const unsigned char*>(view.data) +
         offset / info.block_elements * info.block_bytes;
}
inline unsigned char* MutableAddressOf(const TensorView& view, std::int64_t offset) {
  return const_cast<unsigned char*>(AddressOf(view, offset));
}

/// Whether the elements are adjacent in memory, in order.
inline bool IsContiguous(const TensorView& view) {
  std::int64_t next = 1;
  for (int d = 0; d < 4; ++d) {
    if (view.shape[d] != 1 && view.stride[d] != next) return false;
    next *= view.shape[d];
  }
  return true;
}

/// Element `index` as f64. Float types (IsFloatType) and i32 only.
double ReadF64(DataType type, const void* data, std::int64_t index);
/// Stores an element, rounding to nearest even. Float types only.
void WriteF64(DataType type, void* data, std::int64_t index, double value);

/// "[576, 12, 1, 1]".
std::string ShapeText(const TensorView& view);

/// kInvalidArgument, naming `what`, unless the view has memory (or no elements), no negative size
/// or stride, and adjacent elements in dimension 0.
Status CheckView(std::string_view what, const TensorView& view);

/// kInvalidArgument unless `view` has the shape of `like`.
Status CheckSameShape(std::string_view what, const TensorView& view, std::string_view like_what,
                      const TensorView& like);

/// kInvalidArgument unless `view` is an int32 vector of at least `count` adjacent elements.
Status CheckInts(std::string_view what, const TensorView& view, std::int64_t count);

}  // namespace tilewright
