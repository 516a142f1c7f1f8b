#include "spec.cuh"
//
#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/gemm/cuda/gemm_simt_kernel.cuh"

namespace tw {

struct SimtSpec {
  static constexpr Type kTypeA = spec::kTypeA;
  static constexpr Type kTypeB = spec::kTypeB;
  static constexpr Type kTypeC = spec::kTypeC;
  static constexpr Type kTypeD = spec::kTypeD;
  static constexpr int kTileM = spec::kTileM;
  static constexpr int kTileN = spec::kTileN;
  static constexpr int kTileK = spec::kTileK;
  static constexpr int kWarps = spec::kWarps;
  static constexpr int kRows = spec::kParam0;  // of the tile's rows, a thread's
  static constexpr int kCols = spec::kParam1;  // of the tile's columns, a thread's
};

}  // namespace tw

extern "C" __global__ void __launch_bounds__(32 * tw::spec::kWarps)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemmMmaParams params) {
  tw::StartAfterPrerequisites();
  tw::GemmSimt<tw::SimtSpec>(params);
}
