#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/experts/cuda/combine_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::CombineParams params) {
  using namespace tw::spec;
  tw::StartAfterPrerequisites();
  using Kernel = tw::Combine<kTypeA>;
  const auto thread = static_cast<int>(blockIdx.x * (kWarps * 32u) + threadIdx.x);
  Kernel{params}.Run(static_cast<int>(blockIdx.y), thread * Kernel::kPack);
}
