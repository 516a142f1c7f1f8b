#include "ops/gemm/cuda/gemv/gemv_kernel.cuh"
#include "spec.cuh"

// Weights of bf16, f16 or f32.

static_assert(tw::spec::kTypeB == tw::Type::kBF16 || tw::spec::kTypeB == tw::Type::kF16 ||
              tw::spec::kTypeB == tw::Type::kF32);

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32, tw::spec::kParam1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemvParams params) {
  using namespace tw::spec;
  tw::Gemv<kTypeA, kTypeB, kTypeC, kTypeD, kTileM, kTileN, kWarps, kParam0, kStages>(params);
}
