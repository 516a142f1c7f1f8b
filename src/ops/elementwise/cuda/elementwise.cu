#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/elementwise/cuda/elementwise_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::ElementwiseParams params) {
  using namespace tw::spec;
  tw::StartAfterPrerequisites();
  tw::Elementwise<kTypeA, kTypeB, kTypeD>{params}.Run(blockIdx.x * (kWarps * 32u) + threadIdx.x);
}
