#include "ops/gemm/cuda/gemm_chain/gemm_chain_kernel.cuh"
#include "spec.cuh"

// Products of up to 64 rows of bf16 with weights in GGUF blocks, one after the other in one launch.

static_assert(tw::spec::kTypeA == tw::Type::kBF16);

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, 1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemmChainParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::GemmChain<kTypeB, kTileM, kTileN, kParam0, kStages>::Run(params, smem);
}
