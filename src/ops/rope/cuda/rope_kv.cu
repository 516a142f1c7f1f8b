#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/rope/cuda/rope_kv_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::RopeKvParams params) {
  using namespace tw::spec;
  __shared__ tw::RopeTables tables;
  tw::LaunchDependents();
  if (static_cast<int>(threadIdx.x) < params.dims / 2) tw::PrefetchToL2(params.turns + threadIdx.x);
  tw::WaitForPrerequisites();
  tw::RopeKv<kTypeA, kTypeC, kTypeD, kWarps>{params, tables, static_cast<int>(blockIdx.x)}.Run();
}
