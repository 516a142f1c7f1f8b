#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/copy/cuda/copy_kernel.cuh"
#include "spec.cuh"

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::CopyParams params) {
  using namespace tw::spec;
  tw::StartAfterPrerequisites();
  if constexpr (kTypeA == tw::Type::kU8) {
    using Bytes = tw::CopyBytes<kWarps>;
    Bytes{params}.Run(blockIdx.x * static_cast<tw::u32>(Bytes::kThreads * Bytes::kItems) +
                      threadIdx.x);
  } else {
    tw::Convert<kTypeA, kTypeD>{params}.Run(blockIdx.x * (kWarps * 32u) + threadIdx.x);
  }
}
