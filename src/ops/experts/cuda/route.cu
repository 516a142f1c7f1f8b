#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/experts/cuda/route_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::RouteParams params) {
  using namespace tw::spec;
  using Kernel = tw::Route<kTypeA, kParam0, kWarps>;
  __shared__ Kernel::Shared shared;
  tw::StartAfterPrerequisites();
  Kernel{params, shared}.Run(static_cast<int>(blockIdx.x));
}
