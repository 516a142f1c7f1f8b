#include "ops/norm/cuda/kernels.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "engine/compiled/compiled_kernel.h"
#include "engine/compiled/launch_cost.h"
#include "ops/norm/cuda/families.h"
#include "ops/norm/cuda/rmsnorm_launch.h"
#include "tilewright/cuda/rmsnorm_params.h"

namespace tilewright::norm {
namespace {

std::optional<Rejection> WrongType(const char* field, DataType have, DataType need) {
  return Rejection{Reason::kType, Format("{} = {}", field, DataTypeName(have)),
                   std::string(DataTypeName(need))};
}

std::optional<Rejection> Feasible(const KernelSpec& spec, const Desc& desc) {
  if (desc.type_in != spec.type_a) return WrongType("type_in", desc.type_in, spec.type_a);
  if (desc.type_weight != spec.type_b) {
    return WrongType("type_weight", desc.type_weight, spec.type_b);
  }
  if (desc.type_out != spec.type_d) return WrongType("type_out", desc.type_out, spec.type_d);
  if (desc.type_sum != spec.type_c) return WrongType("type_sum", desc.type_sum, spec.type_c);
  if (desc.cols > kMaxRmsNormCols) {
    return Rejection{Reason::kShape, Format("cols = {}", desc.cols),
                     Format("at most {}", kMaxRmsNormCols)};
  }
  return std::nullopt;
}

/// A CTA a row. What does not fit its registers it reads again, and it waits for the memory once a
/// turn of all its threads.
double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const bool f32 = spec.type_a == DataType::kF32;
  const double kept = cuda::RmsNormCapacity(spec.warps, spec.params[0], f32);
  const double turns = std::ceil(desc.cols / kept);
  const double rows = desc.rows, cols = desc.cols;
  const auto in_bytes = static_cast<double>(BytesOf(spec.type_a, 1));
  const auto out_bytes = static_cast<double>(BytesOf(spec.type_d, 1));
  const auto weight_bytes = static_cast<double>(BytesOf(spec.type_b, 1));
  const double sum_bytes =
      spec.type_c != DataType::kNone ? 2 * static_cast<double>(BytesOf(spec.type_c, 1)) : 0;
  LaunchCost cost;
  // While a row is read again the CTA asks the memory for nothing: 4096 rows of 4096 in bf16 crossed
  // it at 3.23 TB/s with that, at 3.47 without.
  const double rests = turns > 1 ? 1.07 : 1;
  cost.memory_bytes =
      rests * (rows * cols * (in_bytes + out_bytes + sum_bytes) + cols * weight_bytes);
  cost.cache_bytes = turns > 1 ? rows * cols * in_bytes : 0;
  cost.in_flight_bytes = std::min(kept, cols) * (in_bytes + out_bytes + weight_bytes);
  // Two exchanges among the warps, and a wait for every turn after the first, whose wait is that of
  // any round; all turns are waited for twice where the row is read again.
  constexpr double kWaitUs = 0.6, kExchangeUs = 0.05;
  cost.ctas_per_sm = std::clamp(64 / std::max<int>(spec.warps, 1), 1, 32);
  const double waits = turns > 1 ? 2 * turns - 1 : 0;
  cost.cta_us = (waits * kWaitUs + kExchangeUs * spec.warps) / cost.ctas_per_sm;
  cost.ctas = desc.rows;
  return PredictUs(cost, device);
}

/// The rows of `view` under one index of its last dimension.
TensorView Slice(const TensorView& view, std::int64_t i) {
  TensorView slice = view;
  if (view.data == nullptr) return slice;
  slice.data =
      view.as<std::byte>() + i * view.stride[3] * static_cast<std::int64_t>(BytesOf(view.dtype, 1));
  slice.shape[3] = 1;
  return slice;
}

/// One launch, or one for each index of the last dimension where three dimensions count rows at
/// distances of their own.
Status Launch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel, Stream stream) {
  const AddNormArgs all{args, args.residual, args.sum};
  if (RowsInGroups(all)) return kernel.Launch(RmsNormLaunch(spec, all), stream);
  for (std::int64_t i = 0; i < args.in.shape[3]; ++i) {
    AddNormArgs part = all;
    for (TensorView* view : {&part.norm.in, &part.norm.out, &part.residual, &part.sum})
      *view = Slice(*view, i);
    if (Status launched = kernel.Launch(RmsNormLaunch(spec, part), stream); !launched)
      return launched;
  }
  return {};
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  // Not batch-invariant: the order of a sum depends on how the rows are aligned.
  const CompiledFamily<Op> family{
      .feasible = &Feasible, .estimate_us = &EstimateUs, .launch = &Launch};
  return AddCompiledFamily(registry, store, RmsNormFamily().name, arch, family);
}

}  // namespace tilewright::norm
