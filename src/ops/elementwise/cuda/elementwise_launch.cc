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
constexpr bool Same(Function ours, ElementwiseFunction kernels) {
  return static_cast<int>(ours) == static_cast<int>(kernels) &&
         elementwise::IsUnary(ours) == cuda::ElementwiseIsUnary(kernels);
}
static_assert(Same(Function::kAdd, ElementwiseFunction::kAdd) &&
              Same(Function::kMul, ElementwiseFunction::kMul) &&
              Same(Function::kSilu, ElementwiseFunction::kSilu) &&
              Same(Function::kSwiGlu, ElementwiseFunction::kSwiGlu) &&
              Same(Function::kGelu, ElementwiseFunction::kGelu) &&
              Same(Function::kGeGlu, ElementwiseFunction::kGeGlu) &&
              Same(Function::kSoftcap, ElementwiseFunction::kSoftcap) &&
              Same(Function::kClampedSwiGlu, ElementwiseFunction::kClampedSwiGlu));

std::optional<Rejection> CheckViews(const KernelSpec& spec, const elementwise::Args& args) {
  if (auto no = cuda::CheckOperand("a", args.a, spec.type_a)) return no;
  if (auto no = cuda::CheckOperand("out", args.out, spec.type_d, args.a.shape)) return no;
  const bool unary = elementwise::IsUnary(args.function);
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
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckViews(spec, args)) return tl::unexpected(*std::move(no));
  // Unread where a function has one operand only.
  const TensorView& b = elementwise::IsUnary(args.function) ? args.a : args.b;
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
  if (args.function == Function::kSoftcap)
    params.softcap = args.softcap, params.inverse_softcap = 1.0f / args.softcap;
  if (args.function == Function::kClampedSwiGlu) params.limit = args.limit;
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
