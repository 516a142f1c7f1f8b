#include "spec.cuh"
//
#include "device/cuda/kernels/dependent_launch.cuh"
#include "ops/gemm/cuda/gemm_simt_kernel.cuh"
#include "ops/gemm/cuda/gemm_simt_spec.cuh"

extern "C" __global__ void __launch_bounds__(32 * tw::spec::kWarps)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GemmMmaParams params) {
  tw::StartAfterPrerequisites();
  tw::GemmSimt<tw::SimtSpec>(params);
}
