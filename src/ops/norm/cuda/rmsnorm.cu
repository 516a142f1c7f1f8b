#include "ops/norm/cuda/rmsnorm_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::RmsNormParams params) {
  using namespace tw::spec;
  __shared__ float scratch[kWarps];
  tw::RmsNorm<kTypeA, kTypeB, kTypeC, kTypeD, kWarps, kParam0>{
      params, static_cast<tw::i64>(blockIdx.x), scratch}
      .Run();
}
