#include "spec.cuh"
//
#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/attention/cuda/attention_decode_kernel.cuh"

namespace tw {

struct DecodeSpec {
  static constexpr Type kType = spec::kTypeA;
  static constexpr int kHeadDim = spec::kParam0;
  static constexpr int kWarps = spec::kWarps;
  static constexpr int kStages = spec::kStages;
};

}  // namespace tw

extern "C" __global__ void __launch_bounds__(32 * tw::spec::kWarps, 8 / tw::spec::kWarps)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::AttentionParams params) {
  extern __shared__ __align__(128) tw::u8 smem[];
  tw::StartAfterPrerequisites();
  tw::AttentionDecode<tw::DecodeSpec>(params, smem).Run();
}
