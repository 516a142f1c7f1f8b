#include "spec.cuh"
//
#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/attention/cuda/attention_split_kernel.cuh"

namespace tw {

struct SplitSpec {
  static constexpr Type kTypeQ = spec::kTypeA;
  static constexpr Type kTypeKv = spec::kTypeB;
  static constexpr int kHeadDim = spec::kParam0;
  static constexpr int kMaxHeads = spec::kTileM;
  static constexpr int kSplit = spec::kTileN;
  static constexpr int kPositions = spec::kTileK;
  static constexpr int kWarps = spec::kWarps;
};

}  // namespace tw

// Four CTAs of a multiprocessor keep its memory busy. Without a number the compiler aims at more
// on sm_120, and spills.
extern "C" __global__ void __launch_bounds__(32 * tw::spec::kWarps, 4)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::AttentionParams params) {
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::StartAfterPrerequisites();
  tw::AttentionSplit<tw::SplitSpec>(params, smem).Run();
}
