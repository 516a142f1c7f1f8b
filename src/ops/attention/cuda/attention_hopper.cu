#include "spec.cuh"
//
#include "ops/attention/cuda/attention_hopper_kernel.cuh"

namespace tw {

struct HopperSpec {
  static constexpr Type kType = spec::kTypeB;
  static constexpr int kHeadDim = spec::kParam0;
  static constexpr int kPositions = spec::kTileN;
  static constexpr int kStages = spec::kStages;
  static constexpr int kConsumers = spec::kWarps / 4 - 1;
  static constexpr int kParts = spec::kParam1;
  static constexpr bool kTurns = spec::kParam2 != 0;
};

}  // namespace tw

// The second launch bound is what setmaxnreg needs to take effect.
extern "C" __global__ void __launch_bounds__(32 * tw::spec::kWarps, 1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::AttentionHopperParams params) {
  extern __shared__ __align__(1024) tw::u8 smem[];
  tw::AttentionHopper<tw::HopperSpec>::Run(params, smem);
}
