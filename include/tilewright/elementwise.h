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

namespace tilewright::elementwise {

enum class Function : std::uint8_t {
  kAdd,     ///< a + b
  kMul,     ///< a * b
  kSilu,    ///< a / (1 + e^-a); b has no data
  kSwiGlu,  ///< silu(a) * b
  /// a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))), the usual approximation of gelu; b has no
  /// data
  kGelu,
  kGeGlu,    ///< gelu(a) * b
  kSoftcap,  ///< c * tanh(a / c) for Args::softcap = c; b has no data
  /// g / (1 + e^(-1.702 g)) * (u + 1) for g = min(a, c), u = b within -c and c, c = Args::limit
  kClampedSwiGlu,
};
inline constexpr std::string_view kFunctionWords[] = {"add",  "mul",   "silu",    "swiglu",
                                                      "gelu", "geglu", "softcap", "clamped_swiglu"};
/// The factor of the exponent of kClampedSwiGlu.
inline constexpr float kClampedSwiGluFactor = 1.702f;
constexpr std::span<const std::string_view> WordsOf(Function) { return kFunctionWords; }
/// Whether a function has one operand only.
constexpr bool IsUnary(Function function) {
  return function == Function::kSilu || function == Function::kGelu ||
         function == Function::kSoftcap;
}

/// One function of `rows` rows of `cols` elements: the key of a choice.
struct Desc {
  Function function = Function::kAdd;
  DataType type_a = DataType::kF32;
  DataType type_b = DataType::kF32;  ///< kNone for functions of one operand
  DataType type_out = DataType::kF32;
  std::int64_t rows = 1;
  std::int32_t cols = 1;
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("function", desc.function), f("rows", desc.rows), f("cols", desc.cols);
  f("type_a", desc.type_a), f("type_b", desc.type_b), f("type_out", desc.type_out);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// Views of equal shape with any row strides (dimension 0 adjacent). out may be a or b; otherwise
/// they do not overlap.
struct Args {
  Function function = Function::kAdd;
  TensorView a, b, out;
  float softcap = 0;  ///< kSoftcap: positive; others do not read it
  float limit = 0;    ///< kClampedSwiGlu: positive; others do not read it
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = elementwise::Desc;
  using Args = elementwise::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  static constexpr std::string_view kName = "elementwise";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together or softcap or limit is not what the function needs.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1, or a second operand that the function does not have.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace tilewright::elementwise
