#include "ops/gemm/cuda/gemm_qw/gemm_qw_kernel.cuh"
#include "spec.cuh"

// 16 to 64 rows of bf16 times weights in GGUF blocks as they lie in the file, by wgmma.

static_assert(tw::spec::kTypeA == tw::Type::kBF16);

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, tw::spec::kParam1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemmQwParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::GemmQw<kTypeB, kTypeC, kTypeD, kEpilogue, kTileM, kTileN, kParam0, kStages>::Run(params,
                                                                                       smem);
}
