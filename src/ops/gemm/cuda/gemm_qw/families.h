#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Family `gemm_qw`: 16 to 64 rows of bf16 times weights in block formats of which 256 values are a
/// multiple of 16 bytes, by wgmma. README.md names the fields of its specs.

namespace tilewright {

inline constexpr const char* kGemmQw = "gemm_qw";

KernelFamily GemmQwFamily();

/// Adds it. kInvalidArgument if the name is taken.
Status AddGemmQwFamily(KernelFamilies& families);

/// The kernels for weights of one type on one architecture, sm_90a: tiles of 16, 32 and 64 rows, with
/// results of bf16, also of gate and up as one product; of 32 rows results of f32, for logits. Empty
/// for other types and architectures. Deterministic order, each once.
std::vector<KernelSpec> GemmQwSpecsForWeight(DataType weight, CudaArch arch);

}  // namespace tilewright
