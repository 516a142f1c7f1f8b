#pragma once

#include <optional>
#include <vector>

#include "tilewright/kernel_family.h"

/// Family `gemm_q`: 8 to a few hundred rows of bf16 times weights in the block formats that
/// gemv_codes.cuh has Codes for, as GGUF has them. README.md names the fields of its specs.

namespace tilewright {

inline constexpr const char* kGemmQ = "gemm_q";

// What gemm_q, gemm_qw and gemm_qr, rows of bf16 times weights in blocks, have in common.

/// Why none of them has kernels for the types, orders and epilogue of a spec.
std::optional<Rejection> CheckGemmQTypes(const KernelSpec& spec);

/// A spec with these types, orders and epilogue and with k-tiles of kGemmQTileK; its other fields are zero.
KernelSpec GemmQSpecOf(const char* family, DataType weight, DataType result, CudaArch arch,
                       SpecEpilogue epilogue);

/// What `of_weight` gives for every block format, in their order.
std::vector<KernelSpec> GemmQCatalog(CudaArch arch,
                                     std::vector<KernelSpec> (*of_weight)(DataType, CudaArch));

KernelFamily GemmQFamily();

/// Adds it. kInvalidArgument if the name is taken.
Status AddGemmQFamily(KernelFamilies& families);

/// The kernels for weights of one type on one architecture: tiles of 8, 16, 32 and, on sm_90a, 64
/// rows, results of bf16, also with gate and up as one product; of 16 and 32 rows results of f32,
/// for logits. Empty for other types. Deterministic
/// order, each once.
std::vector<KernelSpec> GemmQSpecsForWeight(DataType weight, CudaArch arch);

}  // namespace tilewright
