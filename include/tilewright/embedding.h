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

namespace tilewright::embedding {

/// `rows` rows of `hidden` values looked up in a table: the key of a choice.
struct Desc {
  DataType type_table = DataType::kF32;
  DataType type_out = DataType::kF32;
  std::int32_t rows = 1;
  std::int32_t hidden = 1;
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("rows", desc.rows), f("hidden", desc.hidden);
  f("type_table", desc.type_table), f("type_out", desc.type_out);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// out[:, r] = table[:, ids[r]]; a row of zeros where ids[r] is -1, as in padding. table [hidden,
/// entries] of any type with a row stride that is whole blocks, plain layout; ids m int32; out
/// [hidden, m] with any row stride. An id below -1 or outside the table is kInvalidArgument, found
/// before anything is written.
struct Args {
  TensorView table, ids, out;
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = embedding::Desc;
  using Args = embedding::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  static constexpr std::string_view kName = "embedding";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1, or a width that is not whole blocks of the table's type.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace tilewright::embedding
