#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Family `gemm_q`: 8 to a few hundred rows of bf16 times weights in the block formats that
/// gemv_codes.cuh has Codes for, as GGUF has them. README.md names the fields of its specs.

namespace tilewright {

inline constexpr const char* kGemmQ = "gemm_q";

KernelFamily GemmQFamily();

/// Adds it. kInvalidArgument if the name is taken.
Status AddGemmQFamily(KernelFamilies& families);

/// The kernels for weights of one type on one architecture: tiles of 8, 16, 32 and, on sm_90a, 64
/// rows, results of bf16, also with gate and up as one product; of 16 and 32 rows results of f32,
/// for logits. Empty for other types. Deterministic
/// order, each once.
std::vector<KernelSpec> GemmQSpecsForWeight(DataType weight, CudaArch arch);

}  // namespace tilewright
