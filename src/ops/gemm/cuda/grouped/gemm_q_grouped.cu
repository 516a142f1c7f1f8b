#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/gemm/cuda/grouped/gemm_q_grouped.cuh"
#include "spec.cuh"

// Rows of bf16 in groups, weights in GGUF blocks as they lie in the file.

static_assert(tw::spec::kTypeA == tw::Type::kBF16);

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, tw::spec::kParam1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GroupedGemmQParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 ring[];
  tw::LaunchDependents();
  tw::GemmQGrouped<kTypeB, kTypeC, kTypeD, kEpilogue, kTileM, kTileN, kWarps, kParam0, kStages>(
      params, ring);
}
