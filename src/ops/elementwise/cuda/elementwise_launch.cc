#include "ops/elementwise/cuda/elementwise_launch.h"

#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/row_views.h"
#include "ops/elementwise/cuda/families.h"
#include "tilewright/cuda/elementwise_params.h"

namespace tilewright {
namespace {

using cuda::ElementwiseFunction;
using elementwise::Function;
static_assert(static_cast<int>(Function::kAdd) == static_cast<int>(ElementwiseFunction::kAdd) &&
              static_cast<int>(Function::kMul) == static_cast<int>(ElementwiseFunction::kMul) &&
              static_cast<int>(Function::kSilu) == static_cast<int>(ElementwiseFunction::kSilu) &&
              static_cast<int>(Function::kSwiGlu) ==
                  static_cast<int>(ElementwiseFunction::kSwiGlu));

std::optional<Rejection> CheckViews(const KernelSpec& spec, const elementwise::Args& args) {
  if (auto no = cuda::CheckOperand("a", args.a, spec.type_a)) return no;
  if (auto no = cuda::CheckOperand("out", args.out, spec.type_d, args.a.shape)) return no;
  if (args.function > Function::kSwiGlu) {
    return Reject(
        Reason::kShape,
        Format("function {}", elementwise::kFunctionWords[static_cast<std::size_t>(args.function)]),
        "add, mul, silu or swiglu");
  }
  const bool unary = args.function == Function::kSilu;
  if (!unary) {
    if (auto no = cuda::CheckOperand("b", args.b, spec.type_b, args.a.shape)) return no;
  }
  for (const TensorView* view : {&args.a, &args.b, &args.out}) {
    if (view->shape[0] > 1 && view->stride[0] != 1 && !(unary && view == &args.b))
      return Reject(Reason::kStriding, "elements of a row apart", "adjacent elements");
  }
  // Every extent on its own first: their product may be too large for its type.
  std::int64_t elements = 1;
  for (const std::int64_t extent : args.a.shape) {
    if (extent < 1 || extent > kMaxElementwiseElements / elements) {
      return Reject(Reason::kShape, Format("an extent of {}", extent),
                    Format("1 or more, and at most {} elements", kMaxElementwiseElements));
    }
    elements *= extent;
  }
  return std::nullopt;
}

}  // namespace

cuda::LaunchResult ElementwiseLaunch(const KernelSpec& spec, const elementwise::Args& args) {
  const KernelFamily family = ElementwiseFamily();
  if (spec.family != family.name) {
    return tl::unexpected(*Reject(Reason::kDevice, Format("a kernel of {}", spec.family.view()),
                                  Format("one of {}", family.name.view())));
  }
  if (auto no = CheckViews(spec, args)) return tl::unexpected(*std::move(no));
  // silu reads a alone.
  const TensorView& b = args.function == Function::kSilu ? args.a : args.b;
  const std::array<const TensorView*, 3> views = {&args.a, &b, &args.out};
  std::array<cuda::RowStrides, 3> strides;
  const cuda::RowSpace space = cuda::JoinRows(views, strides);
  cuda::ElementwiseParams params{};
  const std::array<cuda::ElementwiseOperand*, 3> operands = {&params.a, &params.b, &params.out};
  bool wide = true;
  for (std::size_t i = 0; i < views.size(); ++i) {
    operands[i]->data = views[i]->data;
    for (std::size_t d = 0; d < 3; ++d) operands[i]->row[d] = strides[i].rows[d];
    wide = wide && cuda::AlignedTo16(*views[i], strides[i]);
  }
  params.function = static_cast<ElementwiseFunction>(args.function);
  for (std::size_t d = 0; d < 3; ++d)
    params.extents[d] = static_cast<unsigned int>(space.extents[d]);
  params.cols = space.cols;
  params.wide = wide ? 1 : 0;
  const int elements = cuda::ElementwiseElements(params.wide);
  params.row_items = static_cast<unsigned int>((space.cols + elements - 1) / elements);
  params.items = params.row_items * static_cast<unsigned int>(space.rows());
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {cuda::ElementwiseGridX(params.items, static_cast<int>(compiled.threads)), 1, 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
