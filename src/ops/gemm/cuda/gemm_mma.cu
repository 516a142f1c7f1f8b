#include "spec.cuh"
//
#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/gemm/cuda/gemm_mma_kernel.cuh"

namespace tw {

struct MmaSpec {
  static constexpr Type kTypeA = spec::kTypeA;
  static constexpr Type kTypeC = spec::kTypeC;
  static constexpr Type kTypeD = spec::kTypeD;
  static constexpr bool kRowMajorA = spec::kRowMajorA;
  static constexpr bool kRowMajorB = spec::kRowMajorB;
  static constexpr int kTileM = spec::kTileM;
  static constexpr int kTileN = spec::kTileN;
  static constexpr int kTileK = spec::kTileK;
  static constexpr int kWarps = spec::kWarps;
  static constexpr int kStages = spec::kStages;
  static constexpr int kWarpsM = spec::kParam0;  // warps over the rows of the tile
  static constexpr int kBand = spec::kParam1;    // tile rows of a raster band
};

}  // namespace tw

// One CTA a multiprocessor is enough: without the 1 the compiler saves registers by spilling on
// sm_120.
extern "C" __global__ void __launch_bounds__(32 * tw::spec::kWarps, 1)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemmMmaParams params) {
  extern __shared__ __align__(128) tw::u8 ring_bytes[];
  tw::StartAfterPrerequisites();
  tw::GemmMma<tw::MmaSpec>(params, ring_bytes);
}
