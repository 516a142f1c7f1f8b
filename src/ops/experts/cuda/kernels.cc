#include "ops/experts/cuda/kernels.h"

#include <algorithm>

#include "engine/compiled/compiled_kernel.h"
#include "engine/compiled/launch_cost.h"
#include "ops/experts/cuda/combine_launch.h"
#include "ops/experts/cuda/families.h"
#include "ops/experts/cuda/route_launch.h"
#include "tilewright/cuda/combine_params.h"
#include "tilewright/cuda/route_params.h"

namespace tilewright {

namespace route {
namespace {

// By count, not measured: two maxima of a warp for each chosen expert, a comparison with every pair
// of the CTA in front; and of several CTAs a counter, the sums over them and a write of each pair.
double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const int chunks = cuda::RouteChunks(desc.rows);
  LaunchCost cost;
  cost.ctas = chunks;
  cost.memory_bytes =
      static_cast<double>(BytesOf(spec.type_a, std::int64_t{desc.rows} * desc.experts));
  cost.ctas_per_sm = 2;
  const int rows = std::min(desc.rows, cuda::kRouteChunkRows);
  const int rows_of_warp = (rows + spec.warps - 1) / spec.warps;
  const double choose_us = rows_of_warp * desc.used * (0.05 + 2e-3 * (spec.params[0] / 32));
  cost.cta_us = (1.0 + choose_us + 0.003 * rows * desc.used) / cost.ctas_per_sm;
  if (chunks == 1) return PredictUs(cost, device);
  constexpr double kArriveUs = 1.5;  // as in attention: a counter and a second read
  const double pairs = static_cast<double>(desc.rows) * desc.used;
  return PredictUs(cost, device) + kArriveUs + 0.02 * chunks + 1e-3 * pairs;
}

Status Launch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel,
              const Workspace& workspace, Stream stream) {
  return kernel.Launch(RouteLaunch(spec, args, workspace), stream);
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  // What is chosen and weighed for a row depends on the row; where its pairs go, on all by definition.
  const CompiledFamily<Op> family{.feasible = &CudaFeasible,
                                  .estimate_us = &EstimateUs,
                                  .launch = nullptr,
                                  .workspace = &CudaWorkspace,
                                  .launch_within = &Launch,
                                  .batch_invariant = &AlwaysBatchInvariant};
  return AddCompiledFamily(registry, store, RouteFamily().name, arch, family);
}

}  // namespace route

namespace combine {
namespace {

double EstimateUs(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device) {
  const std::int64_t sources = desc.used + (desc.type_shared == DataType::kNone ? 0 : 1);
  const std::int64_t values = std::int64_t{desc.rows} * desc.cols;
  LaunchCost cost;
  cost.memory_bytes = static_cast<double>(BytesOf(spec.type_a, values * (sources + 1)));
  cost.ctas_per_sm = 16;
  cost.ctas = std::int64_t{desc.rows} * cuda::CombineGridX(desc.cols, spec.warps * 32);
  cost.in_flight_bytes = cost.memory_bytes / static_cast<double>(cost.ctas);
  return PredictUs(cost, device);
}

Status Launch(const KernelSpec& spec, const Args& args, const LoadedKernel& kernel, Stream stream) {
  return kernel.Launch(CombineLaunch(spec, args), stream);
}

}  // namespace

Status AddCudaKernels(Registry& registry, ArtifactStore& store, CudaArch arch) {
  const CompiledFamily<Op> family{.feasible = &CudaFeasible,
                                  .estimate_us = &EstimateUs,
                                  .launch = &Launch,
                                  .batch_invariant = &AlwaysBatchInvariant};
  return AddCompiledFamily(registry, store, CombineFamily().name, arch, family);
}

}  // namespace combine
}  // namespace tilewright
