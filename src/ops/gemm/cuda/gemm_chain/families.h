#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Family `gemm_chain`: up to four products of at most 64 rows of bf16 with weights in block formats, one after the
/// other in one launch. README.md names the fields of its specs.

namespace tilewright {

inline constexpr const char* kGemmChain = "gemm_chain";

KernelFamily GemmChainFamily();

/// Adds it. kInvalidArgument if the name is taken.
Status AddGemmChainFamily(KernelFamilies& families);

/// The kernels for products of `rows` rows, all with weights of one type that gemm_qw has kernels for, on sm_90a:
/// the one that was faster where they were timed first. Empty for other types, rows and architectures.
std::vector<KernelSpec> GemmChainSpecs(DataType weight, CudaArch arch, int rows);

/// The kernel of gemm_qw that computes a product as a chain's does: to check its operands and to describe them.
KernelSpec GemmQwSpecOf(const KernelSpec& chain, SpecEpilogue epilogue);

}  // namespace tilewright
