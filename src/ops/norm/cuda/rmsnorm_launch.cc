#include "ops/norm/cuda/rmsnorm_launch.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/norm/cuda/families.h"
#include "tilewright/cuda/rmsnorm_params.h"

namespace tilewright {
namespace {

/// Rows of a view, however many dimensions count them.
std::int64_t RowsOf(const TensorView& view) {
  return view.shape[1] * view.shape[2] * view.shape[3];
}

/// Elements from row to row; nullopt where the rows do not lie at one distance.
std::optional<std::int64_t> RowStride(const TensorView& view) {
  std::int64_t stride = 0;
  std::int64_t rows = 1;  // of the dimensions so far
  for (std::size_t i = 1; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) continue;
    if (rows == 1) stride = view.stride[i];
    if (view.stride[i] != rows * stride) return std::nullopt;
    rows *= view.shape[i];
  }
  return stride;
}

std::optional<Rejection> CheckView(const char* name, const TensorView& view, DataType type,
                                   std::int64_t cols, std::int64_t rows) {
  if (view.dtype != type) {
    return Reject(Reason::kType, Format("{} {}", name, DataTypeName(view.dtype)),
                  std::string(DataTypeName(type)));
  }
  if (view.cols() != cols || RowsOf(view) != rows) {
    return Reject(Reason::kShape, Format("{} of {} rows of {}", name, RowsOf(view), view.cols()),
                  Format("{} rows of {}", rows, cols));
  }
  if (view.stride[0] != 1 || !RowStride(view)) {
    return Reject(Reason::kStriding, Format("{}: elements or rows at several distances", name),
                  "adjacent elements, rows at one distance");
  }
  if (view.data == nullptr) {
    return Reject(Reason::kShape, Format("{} is null", name), "device memory");
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % BytesOf(type, 1) != 0) {
    return Reject(Reason::kAlignment, Format("{} at {}", name, view.data),
                  Format("a multiple of its element, {} bytes", BytesOf(type, 1)));
  }
  return std::nullopt;
}

std::optional<Rejection> CheckViews(const KernelSpec& spec, const AddNormArgs& args) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  const std::int64_t cols = args.norm.in.cols(), rows = RowsOf(args.norm.in);
  if (rows < 1 || rows > kMax || cols < 1 || cols > kMaxRmsNormCols) {
    return Reject(Reason::kShape, Format("{} rows of {}", rows, cols),
                  Format("1 to {} rows of 1 to {}", kMax, kMaxRmsNormCols));
  }
  if (auto no = CheckView("in", args.norm.in, spec.type_a, cols, rows)) return no;
  if (auto no = CheckView("weight", args.norm.weight, spec.type_b, cols, 1)) return no;
  if (auto no = CheckView("out", args.norm.out, spec.type_d, cols, rows)) return no;
  if (spec.epilogue == SpecEpilogue::kAdd) {
    if (auto no = CheckView("residual", args.residual, spec.type_c, cols, rows)) return no;
    return CheckView("sum", args.sum, spec.type_c, cols, rows);
  }
  if (args.residual.data != nullptr || args.sum.data != nullptr) {
    return Reject(Reason::kEpilogue, "a residual", "none without the epilogue add");
  }
  return std::nullopt;
}

}  // namespace

bool RowsAtOneDistance(const TensorView& view) { return RowStride(view).has_value(); }

cuda::LaunchResult RmsNormLaunch(const KernelSpec& spec, const AddNormArgs& args) {
  const KernelFamily family = RmsNormFamily();
  if (spec.family != family.name) {
    return tl::unexpected(*Reject(Reason::kDevice, Format("a kernel of {}", spec.family.view()),
                                  Format("one of {}", family.name.view())));
  }
  if (auto no = CheckViews(spec, args)) return tl::unexpected(*std::move(no));
  const auto stride = [](const TensorView& view) {
    return view.data != nullptr ? RowStride(view).value_or(0) : 0;
  };
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::RmsNormParams params{};
  params.in = args.norm.in.data;
  params.weight = args.norm.weight.data;
  params.residual = args.residual.data;
  params.sum = args.sum.data;
  params.out = args.norm.out.data;
  params.in_stride = stride(args.norm.in);
  params.residual_stride = stride(args.residual);
  params.sum_stride = stride(args.sum);
  params.out_stride = stride(args.norm.out);
  params.rows = static_cast<int>(RowsOf(args.norm.in));
  params.width = static_cast<int>(args.norm.in.cols());
  params.epsilon = args.norm.epsilon;
  cuda::CudaLaunch launch;
  launch.grid = {cuda::RmsNormGridX(params.rows), 1, 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
