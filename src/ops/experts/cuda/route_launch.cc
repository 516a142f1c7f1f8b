#include "ops/experts/cuda/route_launch.h"

#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/row_views.h"
#include "engine/workspace.h"
#include "ops/experts/cuda/families.h"
#include "tilewright/cuda/route_params.h"

namespace tilewright::route {
namespace {

std::optional<Rejection> CheckViews(const KernelSpec& spec, const Args& args) {
  if (auto no = cuda::CheckOperand("logits", args.logits, spec.type_a)) return no;
  if (auto no = cuda::CheckOperand("weights", args.weights, spec.type_a)) return no;
  for (const auto& [name, view] : {std::pair("offsets", &args.offsets),
                                   {"sources", &args.sources},
                                   {"places", &args.places},
                                   {"experts", &args.experts}}) {
    if (view == &args.experts && view->data == nullptr) continue;
    if (auto no = cuda::CheckOperand(name, *view, DataType::kI32)) return no;
  }
  const auto apart = [](const TensorView& v) { return v.shape[0] > 1 && v.stride[0] != 1; };
  if (apart(args.logits) || apart(args.weights))
    return Reject(Reason::kStriding, "elements of a row apart", "adjacent elements");
  return std::nullopt;
}

}  // namespace

std::optional<Rejection> CudaFeasible(const KernelSpec& spec, const Desc& desc) {
  if (desc.type_logits != spec.type_a || desc.type_weights != spec.type_a) {
    return Rejection{Reason::kType,
                     Format("logits {}, weights {}", DataTypeName(desc.type_logits),
                            DataTypeName(desc.type_weights)),
                     Format("{} for both", DataTypeName(spec.type_a))};
  }
  if (desc.experts > spec.params[0]) {
    return Rejection{Reason::kShape, Format("experts = {}", desc.experts),
                     Format("at most {}", spec.params[0])};
  }
  if (desc.used > cuda::kRouteMostUsed) {
    return Rejection{Reason::kShape, Format("used = {}", desc.used),
                     Format("at most {}", cuda::kRouteMostUsed)};
  }
  return std::nullopt;
}

WorkspaceSize CudaWorkspace(const KernelSpec&, const Desc& desc, const DeviceSpec&) {
  return {.barriers = cuda::RouteArrivalBytes(desc.rows),
          .partials = cuda::RoutePartialBytes(desc.rows, desc.experts, desc.used)};
}

cuda::LaunchResult RouteLaunch(const KernelSpec& spec, const Args& args,
                               const Workspace& workspace) {
  const KernelFamily family = RouteFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  const Result<Desc> desc = DescOf(args, {});
  if (!desc) {
    return tl::unexpected(*Reject(Reason::kShape, desc.error().message, "views that fit together"));
  }
  if (auto no = CudaFeasible(spec, *desc)) return tl::unexpected(*std::move(no));
  if (auto no = CheckViews(spec, args)) return tl::unexpected(*std::move(no));
  const WorkspaceSize needed = CudaWorkspace(spec, *desc, {});
  if (auto no = CheckWorkspace(workspace, needed)) return tl::unexpected(*std::move(no));
  cuda::RouteParams params{};
  params.logits = args.logits.data;
  params.weights = args.weights.data;
  params.places = args.places.as<int>();
  params.offsets = args.offsets.as<int>();
  params.sources = args.sources.as<int>();
  params.experts_of = args.experts.as<int>();
  params.partials = static_cast<int*>(workspace.partials);
  params.arrival = static_cast<unsigned int*>(workspace.barriers);
  params.logits_stride = args.logits.stride[1];
  params.weights_stride = args.weights.stride[1];
  params.rows = desc->rows;
  params.experts = desc->experts;
  params.used = desc->used;
  params.normalise = args.normalise ? 1 : 0;
  params.scale = args.scale;
  cuda::CudaLaunch launch;
  launch.grid = {static_cast<std::uint32_t>(cuda::RouteChunks(params.rows)), 1, 1};
  launch.block = {family.launch(spec).threads, 1, 1};
  launch.params = cuda::KernelParams(params);
  launch.workspace = {needed.partials + needed.barriers, cuda::Zeroing::kOnce};
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright::route
