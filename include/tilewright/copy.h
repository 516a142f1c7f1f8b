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

namespace tilewright::copy {

/// A copy of `rows` rows of `cols` elements, converting the type: the key of a choice.
struct Desc {
  DataType type_src = DataType::kF32;
  DataType type_dst = DataType::kF32;
  std::int64_t rows = 1;
  std::int32_t cols = 1;
  bool adjacent = true;  ///< dimension 0 of both views has stride 1
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("rows", desc.rows), f("cols", desc.cols);
  f("type_src", desc.type_src), f("type_dst", desc.type_dst), f("adjacent", desc.adjacent);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// dst = src, element by element. Equal shapes, any strides >= 0 in every dimension (block types:
/// dimension 0 adjacent). Equal types copy bytes, whatever the type; f64, f32, f16 and bf16 convert
/// into each other, rounding to nearest even; block formats are unpacked to f32, f16 or bf16; f32
/// is rounded to i8x32. The views do not overlap, or are one.
struct Args {
  TensorView src, dst;
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = copy::Desc;
  using Args = copy::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  static constexpr std::string_view kName = "copy";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace tilewright::copy
