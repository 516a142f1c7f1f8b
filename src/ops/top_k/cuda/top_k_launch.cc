#include "ops/top_k/cuda/top_k_launch.h"

#include <optional>
#include <utility>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/row_views.h"
#include "engine/workspace.h"
#include "ops/top_k/cuda/families.h"
#include "tilewright/cuda/top_k_params.h"

namespace tilewright::top_k {
namespace {

constexpr std::int32_t kMostRows = 65535;  // the grid's second extent

std::optional<Rejection> CheckViews(const KernelSpec& spec, const Args& args) {
  const std::int64_t rows = args.in.shape[1], k = args.ids.shape[0];
  if (auto no = cuda::CheckOperand("in", args.in, spec.type_a, {args.in.shape[0], rows, 1, 1}))
    return no;
  if (auto no = cuda::CheckOperand("ids", args.ids, DataType::kI32, {k, rows, 1, 1})) return no;
  const bool values = args.values.data != nullptr;
  if (values) {
    if (auto no = cuda::CheckOperand("values", args.values, DataType::kF32, {k, rows, 1, 1}))
      return no;
  }
  if (args.tokens.data != nullptr) {
    for (const auto& [name, view] : {std::pair{"tokens", &args.tokens},
                                     {"positions", &args.positions},
                                     {"turns", &args.turns}}) {
      if (auto no = cuda::CheckOperand(name, *view, DataType::kI32, {rows, 1, 1, 1})) return no;
    }
    const std::int64_t turns = args.found.shape[1];
    if (auto no = cuda::CheckOperand("found", args.found, DataType::kI32, {rows, turns, 1, 1}))
      return no;
  }
  const auto apart = [](const TensorView& v) { return v.shape[0] > 1 && v.stride[0] != 1; };
  if (apart(args.in) || apart(args.ids) || (values && apart(args.values))) {
    return Reject(Reason::kStriding, "elements of a row apart", "adjacent elements");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Rejection> CudaFeasible(const KernelSpec& spec, const Desc& desc) {
  if (desc.type_in != spec.type_a) {
    return Rejection{Reason::kType, Format("type_in = {}", DataTypeName(desc.type_in)),
                     std::string(DataTypeName(spec.type_a))};
  }
  if (desc.type_values != DataType::kNone && desc.type_values != DataType::kF32) {
    return Rejection{Reason::kType, Format("type_values = {}", DataTypeName(desc.type_values)),
                     "f32, or none"};
  }
  const int least_k = spec.params[0] == 1 ? 1 : 2;
  if (desc.k < least_k || desc.k > spec.params[0]) {
    return Rejection{Reason::kShape, Format("k = {}", desc.k),
                     Format("{} to {}", least_k, spec.params[0])};
  }
  if (desc.cols > cuda::TopKMostCols(desc.k)) {
    return Rejection{Reason::kShape, Format("cols = {}", desc.cols),
                     Format("at most {} for k = {}", cuda::TopKMostCols(desc.k), desc.k)};
  }
  if (desc.rows > kMostRows) {
    return Rejection{Reason::kShape, Format("rows = {}", desc.rows),
                     Format("at most {}", kMostRows)};
  }
  return std::nullopt;
}

WorkspaceSize CudaWorkspace(const KernelSpec&, const Desc& desc, const DeviceSpec&) {
  return {.barriers = cuda::TopKArrivalBytes(desc.rows, desc.cols),
          .partials = cuda::TopKPartialBytes(desc.rows, desc.cols, desc.k)};
}

cuda::LaunchResult TopKLaunch(const KernelSpec& spec, const Args& args,
                              const Workspace& workspace) {
  const KernelFamily family = TopKFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  const Result<Desc> desc = DescOf(args, {});
  if (!desc) {
    return tl::unexpected(*Reject(Reason::kShape, desc.error().message, "views that fit together"));
  }
  if (auto no = CudaFeasible(spec, *desc)) return tl::unexpected(*std::move(no));
  if (auto no = CheckViews(spec, args)) return tl::unexpected(*std::move(no));
  const WorkspaceSize needed = CudaWorkspace(spec, *desc, {});
  if (auto no = CheckWorkspace(workspace, needed)) return tl::unexpected(*std::move(no));
  cuda::TopKParams params{};
  params.in = args.in.data;
  params.ids = args.ids.as<int>();
  params.values = args.values.as<float>();
  params.partials = static_cast<unsigned long long*>(workspace.partials);
  params.arrivals = static_cast<unsigned int*>(workspace.barriers);
  params.in_stride = args.in.stride[1];
  params.ids_stride = args.ids.stride[1];
  params.values_stride = args.values.stride[1];
  params.rows = desc->rows;
  params.cols = desc->cols;
  params.k = desc->k;
  params.tokens = args.tokens.as<int>();
  params.positions = args.positions.as<int>();
  params.turns = args.turns.as<int>();
  params.found = args.found.as<int>();
  params.found_turns = static_cast<int>(args.found.shape[1]);
  params.found_stride = args.found.stride[1];
  cuda::CudaLaunch launch;
  launch.grid = {static_cast<std::uint32_t>(cuda::TopKChunks(params.cols)),
                 static_cast<std::uint32_t>(params.rows), 1};
  launch.block = {family.launch(spec).threads, 1, 1};
  launch.params = cuda::KernelParams(params);
  launch.workspace = {needed.partials + needed.barriers, cuda::Zeroing::kOnce};
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright::top_k
