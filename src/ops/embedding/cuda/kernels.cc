#include "ops/embedding/cuda/kernels.h"

#include "core/text.h"
#include "engine/compiled/compiled_kernel.h"
#include "engine/compiled/launch_cost.h"
#include "ops/embedding/cuda/embedding_launch.h"
#include "ops/embedding/cuda/families.h"

namespace tilewright::embedding {
namespace {

/// Of a row: the grid has room for as many CTAs of single elements.
constexpr std::int32_t kMaxHidden = 1 << 22;

std::optional<Rejection> Feasible(const KernelSpec& spec, const Desc& desc) {
  if (desc.type_table != spec.type_a || desc.type_out != spec.type_d) {
    return Rejection{Reason::kType,
                     Format("{} to {}", DataTypeName(desc.type_table), DataTypeName(desc.type_out)),
                     Format("{} to {}", DataTypeName(spec.type_a), DataTypeName(spec.type_d))};
  }
  if (desc.hidden > kMaxHidden) {
    return Rejection{Reason::kShape, Format("hidden = {}", desc.hidden),
                     Format("at most {}", kMaxHidden)};
  }
  return std::nullopt;
}

double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const std::int64_t elements = std::int64_t{desc.rows} * desc.hidden;
  LaunchCost cost;
  cost.memory_bytes = static_cast<double>(BytesOf(spec.type_a, elements)) +
                      static_cast<double>(BytesOf(spec.type_d, elements));
  cost.ctas_per_sm = 16;
  const std::int64_t in_cta = std::int64_t{spec.warps} * 32 * 8;
  cost.ctas = desc.rows * ((desc.hidden + in_cta - 1) / in_cta);
  cost.in_flight_bytes = cost.memory_bytes / static_cast<double>(cost.ctas);
  return PredictUs(cost, device);
}

Status Launch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel, Stream stream) {
  return kernel.Launch(EmbeddingLaunch(spec, args), stream);
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  // An element of the result has its own operands only.
  const CompiledFamily<Op> family{.feasible = &Feasible,
                                  .estimate_us = &EstimateUs,
                                  .launch = &Launch,
                                  .batch_invariant = &AlwaysBatchInvariant};
  return AddCompiledFamily(registry, store, EmbeddingFamily().name, arch, family);
}

}  // namespace tilewright::embedding
