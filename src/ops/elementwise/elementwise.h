#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/op.h"
#include "tilewright/tensor.h"

namespace tilewright {

enum class ElementwiseOp : std::uint8_t {
  kAdd,     ///< a + b
  kMul,     ///< a * b
  kSilu,    ///< a / (1 + e^-a); b has no data
  kSwiGlu,  ///< silu(a) * b
};
std::string_view ElementwiseOpName(ElementwiseOp op);

/// One operation on `rows` rows of `cols` elements: the key of a choice.
struct ElementwiseDesc {
  ElementwiseOp op = ElementwiseOp::kAdd;
  DataType type_a = DataType::kF32;
  DataType type_b = DataType::kF32;  ///< kNone for kSilu
  DataType type_out = DataType::kF32;
  std::int64_t rows = 1;
  std::int32_t cols = 1;
  std::int32_t threads = 1;  ///< workers of the executor

  auto operator<=>(const ElementwiseDesc&) const = default;
};
std::string KeyOf(const ElementwiseDesc& desc);

/// Views of equal shape with any row strides (dimension 0 adjacent). out may be a or b; otherwise
/// they do not overlap.
struct ElementwiseArgs {
  ElementwiseOp op = ElementwiseOp::kAdd;
  TensorView a, b, out;
};

using ElementwiseKernel = OpKernel<ElementwiseDesc, ElementwiseArgs>;
using ElementwiseRegistry = OpRegistry<ElementwiseDesc, ElementwiseArgs>;

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<ElementwiseDesc> DescOf(const ElementwiseArgs& args, int threads);

void AddElementwise(ElementwiseRegistry& registry);

/// What ReferenceElementwise answers before it reads an element: by types and shapes alone.
Status CheckReference(const ElementwiseArgs& args);

/// The oracle, in float64; any float type of each view, f64 included. Single thread.
Status ReferenceElementwise(const ElementwiseArgs& args);

}  // namespace tilewright
