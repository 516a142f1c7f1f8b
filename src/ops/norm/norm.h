#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "engine/op.h"
#include "tilewright/tensor.h"

namespace tilewright {

/// RMS normalisation of `rows` rows of `cols` values: the key of a choice.
struct NormDesc {
  DataType type_in = DataType::kF32;
  DataType type_weight = DataType::kF32;
  DataType type_out = DataType::kF32;
  std::int32_t rows = 1;
  std::int32_t cols = 1;
  std::int32_t threads = 1;  ///< workers of the executor

  auto operator<=>(const NormDesc&) const = default;
};
std::string KeyOf(const NormDesc& desc);

/// out[r, c] = in[r, c] / sqrt(mean over c of in[r, c]^2 + epsilon) * weight[c].
/// in and out [cols, rows...] with any row strides (dimension 0 adjacent); weight [cols]. out may
/// be in; otherwise they do not overlap.
struct NormArgs {
  TensorView in, weight, out;
  float epsilon = 1e-5f;
};

using NormKernel = OpKernel<NormDesc, NormArgs>;
using NormRegistry = OpRegistry<NormDesc, NormArgs>;

/// The problem of a call on `threads` workers; kInvalidArgument, naming the view and the field, if
/// the views do not fit together.
Result<NormDesc> DescOf(const NormArgs& args, int threads);

void AddNorm(NormRegistry& registry);

/// What ReferenceNorm answers before it reads an element: by types and shapes alone.
Status CheckReference(const NormArgs& args);

/// The oracle, in float64; any float type of each view, f64 included. Single thread.
Status ReferenceNorm(const NormArgs& args);

}  // namespace tilewright
