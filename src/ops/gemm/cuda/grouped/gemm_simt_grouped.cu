#include "spec.cuh"
//
#include "ops/gemm/cuda/gemm_simt_spec.cuh"
#include "ops/gemm/cuda/grouped/gemm_simt_grouped.cuh"

extern "C" __global__ void __launch_bounds__(32 * tw::spec::kWarps)
    TILEWRIGHT_KERNEL(const __grid_constant__ tw::GroupedGemmSimtParams params) {
  tw::GemmSimtGrouped<tw::SimtSpec>(params);
}
