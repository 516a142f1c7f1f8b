#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/rope/cuda/rope_kv_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::RopeKvParams params) {
  using namespace tw::spec;
  __shared__ tw::RopeAngles<kParam0> angles;
  tw::LaunchDependents();
  if (static_cast<int>(threadIdx.x) < params.dims / 2) tw::PrefetchToL2(params.turns + threadIdx.x);
  tw::WaitForPrerequisites();
  const int row = static_cast<int>(blockIdx.x);
  tw::RopeKv<kTypeA, kTypeC, kTypeD, kParam0, kParam1 != 0, kTileN, kWarps>{
      params, angles, row, params.positions[row], params.kv_heads > 0 ? params.slots[row] : 0}
      .Run();
}
