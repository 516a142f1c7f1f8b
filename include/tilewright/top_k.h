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

namespace tilewright::top_k {

/// The k largest of each of `rows` rows of `cols` values: the key of a choice. k = 1 is argmax.
struct Desc {
  DataType type_in = DataType::kF32;
  DataType type_values = DataType::kNone;  ///< kNone: only the ids are wanted
  std::int32_t rows = 1;
  std::int32_t cols = 1;
  std::int32_t k = 1;
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("rows", desc.rows), f("cols", desc.cols), f("k", desc.k);
  f("type_in", desc.type_in), f("type_values", desc.type_values);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// ids[i, r] is the column of the i-th largest value of row r, values[i, r] that value. Among equal
/// values the lowest column comes first; -0 equals 0. This is the order of a sampler:
///
/// - Minus infinity excludes a column. Where fewer than k columns are left, the remaining ids are
///   -1 and the values minus infinity.
/// - A row with NaN or plus infinity anywhere has no order: its ids are all -1, its values NaN.
///
/// in [cols, rows] and values [k, rows] of floats, ids [k, rows] int32; dimension 0 adjacent, any
/// row strides. values may have no data. No two of them overlap.
///
/// Decoding hands the best token over to the pass that follows, and to the host, without a copy that
/// both would wait for: `tokens`, `positions`, `turns` [rows] and `found` [rows, turns there are], all
/// int32 and adjacent but for the rows of `found`, have data all or none, for k = 1 only. Of a row r
/// with positions[r] >= 0, which any other value marks as padding that stays as it is:
///
///     tokens[r] = found[turns[r]][r] = ids[r];  ++positions[r];  turns[r] is the next, or 0 again
///
/// That is no part of the problem: every kernel for k = 1 does it.
struct Args {
  TensorView in, ids, values;
  TensorView tokens{}, positions{}, turns{}, found{};
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = top_k::Desc;
  using Args = top_k::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  static constexpr std::string_view kName = "top_k";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The most that the kernels find; the oracle has no limit.
inline constexpr std::int32_t kMostK = 64;

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace tilewright::top_k
