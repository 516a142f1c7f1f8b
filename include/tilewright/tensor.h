#pragma once

#include <array>
#include <cstdint>

#include "tilewright/types.h"

namespace tilewright {

/// A non-owning, strided view. Dimension 0 is the innermost (GGML's order): a [rows][cols] matrix
/// has shape {cols, rows, 1, 1}. Strides are in elements; for block formats stride[0] is 1 and
/// stride[1] is a multiple of the block.
struct TensorView {
  void* data = nullptr;
  std::array<std::int64_t, 4> shape{0, 1, 1, 1};
  std::array<std::int64_t, 4> stride{1, 0, 0, 0};
  DataType dtype = DataType::kNone;

  std::int64_t cols() const { return shape[0]; }
  std::int64_t rows() const { return shape[1]; }
  std::int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// Contiguous view of `shape`, innermost first.
inline TensorView Contiguous(void* data, DataType dtype, std::array<std::int64_t, 4> shape) {
  TensorView view{
      data, shape, {1, shape[0], shape[0] * shape[1], shape[0] * shape[1] * shape[2]}, dtype};
  return view;
}

}  // namespace tilewright
