#include "spec.cuh"
//
#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/attention/cuda/attention_simt_kernel.cuh"

namespace tw {

struct SimtSpec {
  static constexpr Type kTypeQ = spec::kTypeA;
  static constexpr Type kTypeKv = spec::kTypeB;
  static constexpr int kMaxHeads = spec::kTileM;
  static constexpr int kWarps = spec::kWarps;
};

}  // namespace tw

// The registers of two CTAs to a multiprocessor, or of one where they would spill (10.0 and newer).
extern "C" __global__ void __launch_bounds__(32 * tw::spec::kWarps, __CUDA_ARCH__ >= 1000 ? 1 : 2)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::AttentionSimtParams params) {
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::StartAfterPrerequisites();
  tw::AttentionSimt<tw::SimtSpec>(params, smem).Run();
}
