#include "ops/gemm/cuda/gemv/gemv_q_kernel.cuh"
#include "ops/gemm/cuda/grouped/grouped_gemv.cuh"
#include "spec.cuh"

// Rows in groups, weights in GGUF blocks as they lie in the file.

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, tw::spec::kParam1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GroupedGemvParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 ring[];
  tw::GemvParams product;
  if (!tw::ProductOfRow<kTypeA, kTypeD>(params, product)) return;
  tw::GemvQ<kTypeA, kTypeB, kTypeC, kTypeD, kTileM, kTileN, kWarps, kParam0, kStages, kEpilogue>(
      product, 0, ring);
}
