#include "spec.cuh"
//
#include "ops/gemm/cuda/gemm_hopper_kernel.cuh"

namespace tw {

struct HopperSpec {
  static constexpr Type kTypeA = spec::kTypeA;
  static constexpr Type kTypeC = spec::kTypeC;
  static constexpr Type kTypeD = spec::kTypeD;
  static constexpr bool kRowMajorA = spec::kRowMajorA;
  static constexpr bool kRowMajorB = spec::kRowMajorB;
  static constexpr int kTileM = spec::kTileM;
  static constexpr int kTileN = spec::kTileN;
  static constexpr int kWarps = spec::kWarps;
  static constexpr int kStages = spec::kStages;
  static constexpr int kCluster = spec::kClusterM > 1 ? spec::kClusterM : 1;
  static constexpr int kClusterN = spec::kClusterN > 1 ? spec::kClusterN : 1;
  static constexpr int kSplits = spec::kSplitK > 1 ? spec::kSplitK : 1;
  static constexpr int kCtasPerSm = spec::kParam1;
  static constexpr int kBand = spec::kParam0;  // tile rows of a raster band
  static constexpr int kWalk = spec::kParam2;  // a GemmHopperWalk
};
static_assert(spec::kTileK == GemmHopper<HopperSpec>::kTileK, "one line of the swizzle");

}  // namespace tw

// The second launch bound is what setmaxnreg needs to take effect: registers at entry are then what
// the register file has for kParam1 CTAs.
extern "C" __global__ void __cluster_dims__(tw::HopperSpec::kCluster,
                                            tw::HopperSpec::kClusterN* tw::HopperSpec::kSplits, 1)
    __launch_bounds__(32 * tw::spec::kWarps, tw::spec::kParam1)
        TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemmHopperParams params) {
  extern __shared__ __align__(1024) tw::u8 smem[];
  tw::GemmHopper<tw::HopperSpec>::Run(params, smem);
}
