#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/copy/cuda/kv_scatter_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::KvScatterParams params) {
  using namespace tw::spec;
  tw::StartAfterPrerequisites();
  tw::KvScatter<kTypeA, kTypeC, kWarps>{params, static_cast<int>(blockIdx.x)}.Run();
}
