#include "spec.cuh"
//
#include "decode/token_kernel.cuh"

// The layers of a token, from the first norm to the logits.

namespace tw {

struct TokenSpec {
  static constexpr Type kBody = spec::kTypeB;
  static constexpr Type kOther = spec::kTypeC;
  static constexpr int kHeadDim = spec::kParam0;
  static constexpr int kWarps = spec::kWarps;
  static constexpr int kStages = spec::kStages;
  static constexpr int kAttentionWarps = spec::kParam1;
  static constexpr int kParts = spec::kParam2;
  static constexpr int kAttentionStages = spec::kParam3;
  static int Cta() { return static_cast<int>(blockIdx.x); }
  static int Ctas() { return static_cast<int>(gridDim.x); }
};

}  // namespace tw

extern "C" __global__ void __launch_bounds__(tw::spec::kWarps * 32 + 32, 1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::TokenParams params) {
  extern __shared__ __align__(256) tw::u8 smem[];
  tw::Token<tw::TokenSpec>(params, smem).Run();
}
