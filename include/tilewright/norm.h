#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "tilewright/operation.h"
#include "tilewright/stages.h"
#include "tilewright/tensor.h"
#include "tilewright/tensor_op.h"

namespace tilewright::norm {

/// RMS normalisation of `rows` rows of `cols` values: the key of a choice.
struct Desc {
  DataType type_in = DataType::kF32;
  DataType type_weight = DataType::kF32;
  DataType type_out = DataType::kF32;
  DataType type_sum = DataType::kNone;  ///< of residual and sum; kNone: nothing is added
  std::int32_t rows = 1;
  std::int32_t cols = 1;
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("rows", desc.rows), f("cols", desc.cols);
  f("type_in", desc.type_in), f("type_weight", desc.type_weight), f("type_out", desc.type_out);
  f("type_sum", desc.type_sum);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// out[r, c] = in[r, c] / sqrt(mean over c of in[r, c]^2 + epsilon) * weight[c].
/// in and out [cols, rows...] with any row strides (dimension 0 adjacent); weight [cols]. out may
/// be in; otherwise they do not overlap.
///
/// With a residual, sum = in + residual is rounded to the type of both, written, and then
/// normalised. residual and sum have the shape of in. sum may be residual, or in if the types are
/// equal, but not out.
struct Args {
  TensorView in, weight, out;
  float epsilon = 1e-5f;
  TensorView residual = {}, sum = {};
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = norm::Desc;
  using Args = norm::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  static constexpr std::string_view kName = "norm";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace tilewright::norm
