#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/embedding/cuda/embedding_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::EmbeddingParams params) {
  using namespace tw::spec;
  tw::StartAfterPrerequisites();
  tw::Embedding<kTypeA, kTypeD, kWarps>{params, static_cast<int>(blockIdx.x)}.Run();
}
