#include "ops/experts/cuda/combine_launch.h"

#include <optional>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "device/cuda/row_views.h"
#include "ops/experts/cuda/families.h"
#include "tilewright/cuda/combine_params.h"

namespace tilewright::combine {
namespace {

constexpr std::int32_t kMostRows = 65535;  // the grid's second extent

std::optional<Rejection> CheckViews(const KernelSpec& spec, const Args& args) {
  for (const auto& [name, view] : {std::pair("x", &args.x),
                                   {"weights", &args.weights},
                                   {"shared", &args.shared},
                                   {"gate", &args.gate},
                                   {"out", &args.out}}) {
    if (view->data == nullptr && (view == &args.shared || view == &args.gate)) continue;
    if (auto no = cuda::CheckOperand(name, *view, spec.type_a)) return no;
    if (view->shape[0] > 1 && view->stride[0] != 1)
      return Reject(Reason::kStriding, "elements of a row apart", "adjacent elements");
  }
  return cuda::CheckOperand("places", args.places, DataType::kI32);
}

/// Whether packs of 16 bytes lie at multiples of 16 in every row.
bool Wide(const TensorView& view) {
  return cuda::AlignedTo16(view, {.col = 1, .rows = {view.stride[1], 0, 0}});
}

}  // namespace

std::optional<Rejection> CudaFeasible(const KernelSpec& spec, const Desc& desc) {
  const bool shared = desc.type_shared != DataType::kNone;
  if (desc.type_x != spec.type_a || desc.type_weights != spec.type_a ||
      desc.type_out != spec.type_a || (shared && desc.type_shared != spec.type_a)) {
    return Rejection{Reason::kType,
                     Format("x {}, weights {}, shared {}, out {}", DataTypeName(desc.type_x),
                            DataTypeName(desc.type_weights), DataTypeName(desc.type_shared),
                            DataTypeName(desc.type_out)),
                     Format("{} for all", DataTypeName(spec.type_a))};
  }
  if (desc.rows > kMostRows) {
    return Rejection{Reason::kShape, Format("rows = {}", desc.rows),
                     Format("at most {}", kMostRows)};
  }
  constexpr std::int32_t kMostCols = 1 << 30;  // and a CTA's values more are an int
  if (desc.cols > kMostCols) {
    return Rejection{Reason::kShape, Format("cols = {}", desc.cols),
                     Format("at most {}", kMostCols)};
  }
  return std::nullopt;
}

cuda::LaunchResult CombineLaunch(const KernelSpec& spec, const Args& args) {
  const KernelFamily family = CombineFamily();
  if (auto no = CheckFamily(spec, family)) return tl::unexpected(*std::move(no));
  const Result<Desc> desc = DescOf(args, {});
  if (!desc) {
    return tl::unexpected(*Reject(Reason::kShape, desc.error().message, "views that fit together"));
  }
  if (auto no = CudaFeasible(spec, *desc)) return tl::unexpected(*std::move(no));
  if (auto no = CheckViews(spec, args)) return tl::unexpected(*std::move(no));
  const bool shared = args.shared.data != nullptr;
  cuda::CombineParams params{};
  params.x = args.x.data;
  params.places = args.places.as<const int>();
  params.weights = args.weights.data;
  params.shared = args.shared.data;
  params.gate = args.gate.data;
  params.out = args.out.data;
  params.x_stride = args.x.stride[1];
  params.weights_stride = args.weights.stride[1];
  params.shared_stride = args.shared.stride[1];
  params.gate_stride = args.gate.stride[1];
  params.out_stride = args.out.stride[1];
  params.rows = desc->rows;
  params.cols = desc->cols;
  params.used = desc->used;
  params.wide = Wide(args.x) && Wide(args.out) && (!shared || Wide(args.shared)) ? 1 : 0;
  const KernelLaunchShape compiled = family.launch(spec);
  cuda::CudaLaunch launch;
  launch.grid = {static_cast<std::uint32_t>(
                     cuda::CombineGridX(params.cols, static_cast<int>(compiled.threads))),
                 static_cast<std::uint32_t>(params.rows), 1};
  launch.block = {compiled.threads, 1, 1};
  launch.params = cuda::KernelParams(params);
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright::combine
