#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/top_k/cuda/top_k_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::TopKParams params) {
  using namespace tw::spec;
  using Kernel = tw::TopK<kTypeA, kParam0, kWarps>;
  __shared__ Kernel::Shared shared;
  tw::StartAfterPrerequisites();
  Kernel{params, shared, static_cast<int>(blockIdx.y)}.Run(static_cast<int>(blockIdx.x));
}
