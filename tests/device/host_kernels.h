#pragma once

#include "fake_cuda.h"
#include "tilewright/types.h"

namespace tilewright::cuda {

/// What the kernels of rmsnorm, gemm_mma, gemm_hopper and gemv compute, on the host and from the
/// parameter block of a launch, in float64: the counterpart of a launcher, written from the public
/// headers of tilewright/cuda. For FakeCuda::SetKernels. The block does not say the types.
struct HostKernels {
  DataType a = DataType::kF32, b = DataType::kF32, d = DataType::kF32;
  bool a_k_major = true, b_k_major = true;

  int operator()(const FakeCuda::Launch& launch) const;
};

}  // namespace tilewright::cuda
