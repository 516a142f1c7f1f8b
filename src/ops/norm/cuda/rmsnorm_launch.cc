#include "ops/norm/cuda/rmsnorm_launch.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "artifact/spec_checks.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "ops/norm/cuda/families.h"
#include "tilewright/cuda/rmsnorm_params.h"

namespace tilewright {
namespace {

/// Rows of a view, however many dimensions count them.
std::int64_t RowsOf(const TensorView& view) {
  return view.shape[1] * view.shape[2] * view.shape[3];
}

/// Groups of rows as all views have them.
struct Groups {
  std::int64_t rows = 1;             ///< of a group
  std::size_t line = 1;              ///< the dimension whose stride leads from row to row
  std::optional<std::size_t> group;  ///< and from group to group; nullopt: there is one
};

/// nullopt where rows of some view lie at three distances.
std::optional<Groups> GroupsOf(std::span<const TensorView* const> views) {
  const auto& shape = views.front()->shape;
  Groups groups;
  std::int64_t joined = 1;  // rows of the dimensions since the last distance
  for (std::size_t d = 1; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const std::size_t last = groups.group.value_or(groups.line);
    const bool joins = std::ranges::all_of(views, [&](const TensorView* view) {
      return view->stride[d] == joined * view->stride[last];
    });
    if (joined == 1 && !groups.group) {
      groups.line = d;
    } else if (!joins) {
      if (groups.group) return std::nullopt;
      groups.group = d;
      groups.rows = joined, joined = 1;
    }
    joined *= shape[d];
  }
  if (!groups.group) groups.rows = joined;
  return groups;
}

/// Those of the arguments that have data.
std::vector<const TensorView*> ViewsOf(const AddNormArgs& args) {
  std::vector<const TensorView*> views;
  for (const TensorView* view : {&args.norm.in, &args.norm.out, &args.residual, &args.sum})
    if (view->data != nullptr) views.push_back(view);
  return views;
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
  if (view.stride[0] != 1) {
    return Reject(Reason::kStriding, Format("{}: elements {} apart", name, view.stride[0]),
                  "adjacent elements");
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
  for (const TensorView* view : ViewsOf(args)) {
    if (view->shape != args.norm.in.shape) {
      return Reject(Reason::kShape, Format("a view of {}", ShapeText(*view)),
                    Format("the shape of in, {}", ShapeText(args.norm.in)));
    }
  }
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

bool RowsInGroups(const AddNormArgs& args) { return GroupsOf(ViewsOf(args)).has_value(); }

cuda::LaunchResult RmsNormLaunch(const KernelSpec& spec, const AddNormArgs& args) {
  const KernelFamily family = RmsNormFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  if (auto no = CheckViews(spec, args)) return tl::unexpected(*std::move(no));
  const std::optional<Groups> groups = GroupsOf(ViewsOf(args));
  if (!groups) {
    return tl::unexpected(
        *Reject(Reason::kStriding, "rows at three distances", "rows at one, or in groups"));
  }
  const auto stride = [&](const TensorView& view) {
    return view.data != nullptr ? view.stride[groups->line] : 0;
  };
  const auto group = [&](const TensorView& view) {
    return view.data != nullptr && groups->group ? view.stride[*groups->group] : 0;
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
  params.in_group = group(args.norm.in);
  params.residual_group = group(args.residual);
  params.sum_group = group(args.sum);
  params.out_group = group(args.norm.out);
  params.group_rows = static_cast<int>(groups->rows);
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
