#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/operation.h"
#include "tilewright/stages.h"
#include "tilewright/tensor.h"
#include "tilewright/tensor_op.h"

namespace tilewright::combine {

/// `rows` rows of `cols` values, each the sum of `used` others: the key of a choice.
struct Desc {
  DataType type_x = DataType::kF32;
  DataType type_weights = DataType::kF32;
  DataType type_out = DataType::kF32;
  DataType type_shared = DataType::kNone;  ///< kNone: no shared expert
  std::int32_t rows = 1;
  std::int32_t cols = 1;
  std::int32_t used = 1;
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("rows", desc.rows), f("cols", desc.cols), f("used", desc.used);
  f("type_x", desc.type_x), f("type_weights", desc.type_weights), f("type_out", desc.type_out);
  f("type_shared", desc.type_shared);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// The end of a sparse feed-forward: what the experts of a row computed, as the router weighs it,
///
///   out[:, r] = sum over j of weights[j, r] * x[:, places[j, r]]
///             + shared[:, r] / (1 + exp(-gate[0, r])),
///
/// summed in the order of j. x [cols, pairs], places [used, rows] of int32, adjacent, each below
/// `pairs`; weights [used, rows], out [cols, rows]; shared [cols, rows] and gate [1, rows], of one
/// type, or neither. Floats; dimension 0 adjacent, any row strides. out overlaps no other.
struct Args {
  TensorView x, places, weights, shared, gate, out;
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = combine::Desc;
  using Args = combine::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  static constexpr std::string_view kName = "combine";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace tilewright::combine
