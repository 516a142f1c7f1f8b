#include "spec.cuh"
//
#include "ops/attention/cuda/attention_decode_kernel.cuh"

namespace tw {

struct DecodeSpec {
  static constexpr Type kType = spec::kTypeA;
  static constexpr int kHeadDim = spec::kParam0;
  static constexpr int kWarps = spec::kWarps;
  static constexpr int kStages = spec::kStages;
  static constexpr int kCluster = spec::kClusterN > 1 ? spec::kClusterN : 1;
  static constexpr bool kForesees = spec::kParam1 != 0;
  static constexpr bool kTurns = spec::kParam2 != 0;
  static constexpr int kCtas =
      tilewright::cuda::AttentionDecodeCtas(kWarps, kStages, spec::kClusterN, kTurns);
};

}  // namespace tw

// The second launch bound: registers for CTAs of the next kernel beside those of this one, or for two
// of this one.
extern "C" __global__ void
#if __CUDA_ARCH__ >= 900
__cluster_dims__(1, tw::DecodeSpec::kCluster, 1)
#endif
    __launch_bounds__(32 * tw::spec::kWarps, tw::DecodeSpec::kCtas)
        TILEWRIGHT_KERNEL(const __grid_constant__ tw::DecodeParams<tw::DecodeSpec::kTurns> params) {
  extern __shared__ __align__(256) tw::u8 smem[];
  tw::LaunchDependentsIfSparse();
  tw::AttentionDecode<tw::DecodeSpec>(params, smem).Run();
}
