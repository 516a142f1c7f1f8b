#include "ops/gemm/cuda/gemm_qr/gemm_qr_kernel.cuh"
#include "spec.cuh"

// Up to 16 rows of bf16, which stay in registers, times weights in GGUF blocks as they lie in the file, by mma.sync.

static_assert(tw::spec::kTypeA == tw::Type::kBF16);

// The second launch bound is what setmaxnreg needs to take effect.
extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, 1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemmQrParams params) {
  using namespace tw::spec;
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::GemmQr<kTypeB, kTypeC, kTypeD, kEpilogue, kTileM, kTileN, kStages>::Run(params, smem);
}
