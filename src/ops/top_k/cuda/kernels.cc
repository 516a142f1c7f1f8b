#include "ops/top_k/cuda/kernels.h"

#include "engine/compiled/compiled_kernel.h"
#include "engine/compiled/launch_cost.h"
#include "ops/top_k/cuda/families.h"
#include "ops/top_k/cuda/top_k_launch.h"
#include "tilewright/cuda/top_k_params.h"

namespace tilewright::top_k {
namespace {

double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const std::int64_t chunks = cuda::TopKChunks(desc.cols);
  LaunchCost cost;
  cost.ctas = chunks * desc.rows;
  cost.memory_bytes =
      static_cast<double>(BytesOf(spec.type_a, std::int64_t{desc.rows} * desc.cols));
  cost.in_flight_bytes = static_cast<double>(BytesOf(spec.type_a, cuda::kTopKChunk));
  cost.ctas_per_sm = 4;
  // By count, not measured: nine barriers for one value; for more each thread compares its best
  // with those of the others, one broadcast load of shared memory each.
  const double select_us = spec.params[0] == 1 ? 0.4 : 1.6;
  cost.cta_us = select_us / cost.ctas_per_sm;
  constexpr double kArriveUs = 1.5;  // as in attention: a counter and a second read
  return PredictUs(cost, device) + (chunks > 1 ? kArriveUs + select_us : 0);
}

Status Launch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel,
              const Workspace& workspace, Stream stream) {
  return kernel.Launch(TopKLaunch(spec, args, workspace), stream);
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  // Nothing is rounded or added up.
  const CompiledFamily<Op> family{.feasible = &CudaFeasible,
                                  .estimate_us = &EstimateUs,
                                  .launch = nullptr,
                                  .workspace = &CudaWorkspace,
                                  .launch_within = &Launch,
                                  .batch_invariant = &AlwaysBatchInvariant};
  return AddCompiledFamily(registry, store, TopKFamily().name, arch, family);
}

}  // namespace tilewright::top_k
