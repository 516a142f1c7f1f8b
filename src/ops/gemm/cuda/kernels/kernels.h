#pragma once

#include "tilewright/artifact_store.h"
#include "tilewright/gemm.h"

namespace tilewright {

/// Adds the kernels of the catalogs of gemm_mma, gemm_hopper, gemm_simt, gemv_bf16, gemv_q,
/// gemv_stream, gemv_int8, gemm_q, gemm_qw and gemm_qr for `arch`. All read plain weights. `store` must outlive the registry. kInvalidArgument where it lacks a family.
Status AddCudaGemm(Registry& registry, ArtifactStore& store, CudaArch arch);

}  // namespace tilewright
