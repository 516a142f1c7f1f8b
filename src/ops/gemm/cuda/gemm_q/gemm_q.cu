#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/gemm/cuda/gemm_q/gemm_q_kernel.cuh"
#include "spec.cuh"

// A few to some hundred rows of bf16 times weights in GGUF blocks as they lie in the file.

static_assert(tw::spec::kTypeA == tw::Type::kBF16);

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, tw::spec::kParam1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemmQParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 ring[];
  tw::LaunchDependents();
  tw::GemmQ<kTypeB, kTypeC, kTypeD, kEpilogue, kTileM, kTileN, kWarps, kParam0, kStages>(params,
                                                                                         ring);
}
