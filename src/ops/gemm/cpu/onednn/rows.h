#pragma once

#include <cstdint>

#include "ops/gemm/cpu/w8a8/layout.h"

/// What lies in front of and behind a product of oneDNN, in vectors: rows of activations that
/// become its operand, sums that become D.

namespace tilewright::gemm {

struct OneDnnRows {
  const char* tu;
  /// Copies k floats and appends zeros up to `padded`.
  void (*to_f32)(const float* a, int k, int padded, void* out);
  /// The same to bf16, to nearest even.
  void (*to_bf16)(const float* a, int k, int padded, void* out);
  /// The same to code + 128 by the one scale that it returns (w8a8/rounding.h).
  float (*to_u8)(const float* a, int k, int padded, void* out);
  /// int32 sums of such codes to products, in place: (sum - 128 * column sum) * scale of the column
  /// * scale of the row, to the bits of the kernels of w8a8.
  void (*scale)(void* sums, int columns, const std::int32_t* column_sums,
                const float* column_scales, float row_scale);
  void (*finish)(const gemm_w8a8::Finish& task);
};

const OneDnnRows& OneDnnRowsAvx512();  ///< needs AVX-512

}  // namespace tilewright::gemm
