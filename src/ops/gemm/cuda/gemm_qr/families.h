#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Family `gemm_qr`: up to 16 rows of bf16, which stay in registers, times weights in the block
/// formats of gemm_qw, by mma.sync. README.md names the fields of its specs.

namespace tilewright {

inline constexpr const char* kGemmQr = "gemm_qr";

KernelFamily GemmQrFamily();

/// Adds it. kInvalidArgument if the name is taken.
Status AddGemmQrFamily(KernelFamilies& families);

/// The kernels for weights of q4_k, q5_k or q6_k on one architecture, sm_90a: of 8 and 16 rows with results of bf16, also of gate and
/// up as one product, and of f32, for logits. Empty for other types and architectures. Deterministic
/// order, each once.
std::vector<KernelSpec> GemmQrSpecsForWeight(DataType weight, CudaArch arch);

}  // namespace tilewright
