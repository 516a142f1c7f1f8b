#include "ops/gemm/cuda/gemv/gemv_stream_kernel.cuh"
#include "ops/gemm/cuda/grouped/grouped_gemv.cuh"
#include "spec.cuh"

// Rows in groups, weights of bf16 or f16.

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, tw::spec::kParam1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GroupedGemvParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::GemvParams product;
  if (!tw::ProductOfRow<kTypeA, kTypeD>(params, product)) return;
  tw::GemvStreamRun<kTypeA, kTypeB, kTypeC, kTypeD, kEpilogue, kWarps, kParam0, kStages,
                    kParam2 != 0>(product, 0, smem);
}
