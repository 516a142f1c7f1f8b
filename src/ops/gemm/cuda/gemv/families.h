#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Families `gemv_bf16` (weights of bf16 and f16) and `gemv_q` (block formats that gemv_codes.cuh
/// has Codes for, as GGUF has them): few rows of activations times a matrix. README.md names the
/// fields of their specs.

namespace tilewright {

KernelFamily GemvBf16Family();
KernelFamily GemvQuantisedFamily();

/// Adds both. kInvalidArgument if a name is taken.
Status AddGemvFamilies(KernelFamilies& families);

/// The kernels for weights of one type on one architecture, for activations of f32 and bf16 and 1,
/// 2, 4 or 8 rows at once. Plain weights: a streaming one, one that splits k between the warps of a
/// CTA (few rows of W) and, for one row, wider ones. Blocks: CTAs of 4 and 8 warps that split k
/// and, for one row, of 16, with deeper rings and with more rows of W. Empty for other types.
/// Deterministic order, each once.
std::vector<KernelSpec> GemvSpecsForWeight(DataType weight, CudaArch arch);

}  // namespace tilewright
