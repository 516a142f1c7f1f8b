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

namespace tilewright::route {

/// Which `used` of `experts` experts each of `rows` rows goes to: the key of a choice.
struct Desc {
  DataType type_logits = DataType::kF32;
  DataType type_weights = DataType::kF32;
  std::int32_t rows = 1;
  std::int32_t experts = 2;
  std::int32_t used = 1;
  bool pair_experts = false;  ///< Args::experts is wanted
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("rows", desc.rows), f("experts", desc.experts), f("used", desc.used);
  f("pair_experts", desc.pair_experts);
  f("type_logits", desc.type_logits), f("type_weights", desc.type_weights);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// The router of a sparse feed-forward. A row goes to the `used` experts with the largest logits,
/// of equal ones to the first; NaN is below every number. Its weight for expert e is
///
///   exp(logit[e]) / sum of exp(logit[i]),  i over all experts, or over the chosen with `normalise`
///
/// times `scale`; with a NaN or an infinity among its logits a row's weights are NaN.
///
/// The pairs (row, expert) are put into the order of experts, those of an expert in the order of
/// rows: pairs offsets[e] .. offsets[e + 1] are those of expert e, pair i belongs to row sources[i],
/// and the j-th best expert of row r has pair places[j, r] and weight weights[j, r]. Where it is wanted,
/// experts[i] is the expert of pair i.
///
/// logits [experts, rows] and weights [used, rows] of floats, any row strides; offsets
/// [experts + 1], sources and experts [rows * used] and places [used, rows] of int32, adjacent. No two
/// overlap.
struct Args {
  TensorView logits, offsets, sources, places, weights;
  TensorView experts = {};  ///< no data: not wanted
  bool normalise = true;
  float scale = 1;
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = route::Desc;
  using Args = route::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  static constexpr std::string_view kName = "route";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1, or more experts used than there are.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace tilewright::route
