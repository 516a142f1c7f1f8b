#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/norm/cuda/rmsnorm_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::RmsNormParams params) {
  using namespace tw::spec;
  __shared__ float scratch[kWarps];
  tw::LaunchDependents();
  if (blockIdx.x == 0) {
    constexpr int kLine = 128 / tw::FloatBytes<kTypeB>();
    const tw::u8* weight = static_cast<const tw::u8*>(params.weight);
    for (int i = static_cast<int>(threadIdx.x); i * kLine < params.width; i += kWarps * 32)
      tw::PrefetchToL2(weight + i * 128);
  }
  tw::WaitForPrerequisites();
  tw::RmsNorm<kTypeA, kTypeB, kTypeC, kTypeD, kWarps, kParam0>{params, static_cast<int>(blockIdx.x),
                                                               scratch}
      .Run();
}
