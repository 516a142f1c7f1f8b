#include "ops/elementwise/cuda/kernels.h"

#include "core/text.h"
#include "engine/compiled/compiled_kernel.h"
#include "engine/compiled/launch_cost.h"
#include "ops/elementwise/cuda/elementwise_launch.h"
#include "ops/elementwise/cuda/families.h"

namespace tilewright::elementwise {
namespace {

std::optional<Rejection> Feasible(const KernelSpec& spec, const Desc& desc) {
  // A function without b is served by the kernels whose b is of a's type.
  const DataType b = IsUnary(desc.function) ? desc.type_a : desc.type_b;
  if (desc.type_a != spec.type_a || b != spec.type_b || desc.type_out != spec.type_d) {
    return Rejection{Reason::kType,
                     Format("{} and {} to {}", DataTypeName(desc.type_a), DataTypeName(b),
                            DataTypeName(desc.type_out)),
                     Format("{} and {} to {}", DataTypeName(spec.type_a), DataTypeName(spec.type_b),
                            DataTypeName(spec.type_d))};
  }
  if (desc.rows > kMaxElementwiseElements / desc.cols) {
    return Rejection{Reason::kShape, Format("rows = {}, cols = {}", desc.rows, desc.cols),
                     Format("at most {} elements", kMaxElementwiseElements)};
  }
  return std::nullopt;
}

double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const std::int64_t elements = desc.rows * desc.cols;
  LaunchCost cost;
  cost.memory_bytes = static_cast<double>(BytesOf(spec.type_a, elements)) +
                      static_cast<double>(BytesOf(spec.type_d, elements));
  if (!IsUnary(desc.function))
    cost.memory_bytes += static_cast<double>(BytesOf(spec.type_b, elements));
  cost.ctas_per_sm = 16;
  const std::int64_t in_cta = std::int64_t{spec.warps} * 32 * 8;
  cost.ctas = (elements + in_cta - 1) / in_cta;
  cost.in_flight_bytes = cost.memory_bytes / static_cast<double>(cost.ctas);
  return PredictUs(cost, device);
}

Status Launch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel, Stream stream) {
  return kernel.Launch(ElementwiseLaunch(spec, args), stream);
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  // An element of the result has its own operands only.
  const CompiledFamily<Op> family{.feasible = &Feasible,
                                  .estimate_us = &EstimateUs,
                                  .launch = &Launch,
                                  .batch_invariant = &AlwaysBatchInvariant};
  return AddCompiledFamily(registry, store, ElementwiseFamily().name, arch, family);
}

}  // namespace tilewright::elementwise
