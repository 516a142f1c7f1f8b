#include "ops/gemm/cuda/gemv/gemv_stream_kernel.cuh"
#include "spec.cuh"

// One row of activations, weights of bf16 or f16.

static_assert(tw::spec::kTypeB == tw::Type::kBF16 || tw::spec::kTypeB == tw::Type::kF16);

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, tw::spec::kParam1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemvParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::GemvStreamRun<kTypeA, kTypeB, kTypeC, kTypeD, kEpilogue, kWarps, kParam0, kStages,
                    kParam2 != 0>(params, blockIdx.y, smem);
}
