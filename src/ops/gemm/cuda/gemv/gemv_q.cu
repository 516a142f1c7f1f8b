#include "ops/gemm/cuda/gemv/gemv_q_kernel.cuh"
#include "spec.cuh"

// Weights in GGUF blocks as they lie in the file.

static_assert(tw::spec::kTypeB != tw::Type::kBF16 && tw::spec::kTypeB != tw::Type::kF16);

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, tw::spec::kParam1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemvParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 ring[];
  tw::GemvQ<kTypeA, kTypeB, kTypeC, kTypeD, kTileM, kTileN, kWarps, kParam0, kStages, kEpilogue>(
      params, static_cast<int>(blockIdx.y) * kTileM, ring);
}
