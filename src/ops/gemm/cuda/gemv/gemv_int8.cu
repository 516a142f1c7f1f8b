#include "ops/gemm/cuda/gemv/gemv_int8_kernel.cuh"
#include "spec.cuh"

// Weights in GGUF blocks as they lie in the file, activations rounded to int8.

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, tw::spec::kParam1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemvParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::GemvInt8Run<kTypeA, kTypeB, kTypeC, kTypeD, kEpilogue, kTileM, kParam0, kWarps, kTileK,
                  kStages, kParam2 != 0, kParam3 != 0>(params, smem);
}
