#include "ops/rope/cuda/kernels.h"

#include "core/text.h"
#include "engine/compiled/compiled_kernel.h"
#include "engine/compiled/launch_cost.h"
#include "ops/rope/cuda/families.h"
#include "ops/rope/cuda/rope_launch.h"
#include "tilewright/cuda/rope_params.h"

namespace tilewright::rope {
namespace {

std::optional<Rejection> Feasible(const KernelSpec& spec, const Desc& desc) {
  if (desc.type_in != spec.type_a || desc.type_out != spec.type_d) {
    return Rejection{Reason::kType,
                     Format("{} to {}", DataTypeName(desc.type_in), DataTypeName(desc.type_out)),
                     Format("{} to {}", DataTypeName(spec.type_a), DataTypeName(spec.type_d))};
  }
  constexpr std::int64_t kMaxElements = 1 << 26;
  if (desc.head_dim % 2 != 0 || std::int64_t{desc.heads} * desc.head_dim > kMaxElements) {
    return Rejection{Reason::kShape, Format("heads = {}, head_dim = {}", desc.heads, desc.head_dim),
                     Format("an even head dimension, rows of at most {} elements", kMaxElements)};
  }
  return std::nullopt;
}

double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const std::int64_t elements = std::int64_t{desc.rows} * desc.heads * desc.head_dim;
  const int cta_heads = cuda::RopeCtaHeads(desc.head_dim, 1, spec.warps * 32);
  LaunchCost cost;
  cost.memory_bytes = static_cast<double>(BytesOf(spec.type_a, elements)) +
                      static_cast<double>(BytesOf(spec.type_d, elements));
  cost.ctas_per_sm = 16;
  cost.ctas = std::int64_t{desc.rows} * cuda::RopeGridY(desc.heads, cta_heads);
  cost.in_flight_bytes = cost.memory_bytes / static_cast<double>(cost.ctas);
  cost.cta_us = 0.5;  // the frequencies, their angles and the barrier come before the first load
  return PredictUs(cost, device);
}

Status Launch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel, Stream stream) {
  return kernel.Launch(RopeLaunch(spec, args), stream);
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  // An element of the result has its own operands only.
  const CompiledFamily<Op> family{.feasible = &Feasible,
                                  .estimate_us = &EstimateUs,
                                  .launch = &Launch,
                                  .batch_invariant = &AlwaysBatchInvariant};
  return AddCompiled<Op>(registry, store, RopeFamily().name, arch,
                         [&](const KernelSpec& spec, const ArtifactKey& request) {
                           return std::make_unique<CompiledKernel<Op>>(spec, request, family,
                                                                       store);
                         });
}

}  // namespace tilewright::rope
