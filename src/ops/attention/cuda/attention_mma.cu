#include "spec.cuh"
//
#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/attention/cuda/attention_mma_kernel.cuh"

namespace tw {

struct MmaSpec {
  static constexpr Type kTypeQ = spec::kTypeA;
  static constexpr Type kTypeKv = spec::kTypeB;
  static constexpr int kHeadDim = spec::kParam0;
  static constexpr int kPositions = spec::kTileN;
  static constexpr int kWarps = spec::kWarps;
};

}  // namespace tw

// One CTA a multiprocessor is enough for the compiler: without the 1 it may spill to fit more.
extern "C" __global__ void __launch_bounds__(32 * tw::spec::kWarps, 1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::AttentionParams params) {
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::StartAfterPrerequisites();
  tw::AttentionMma<tw::MmaSpec>(params, smem).Run();
}
