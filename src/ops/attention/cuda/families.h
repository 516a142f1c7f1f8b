#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Families `attention_split`, for few rows of each sequence and for anything else that must be
/// right, `attention_decode`, for few rows on tensor cores, and `attention_mma`, for many rows there. README.md of the room names the
/// fields of their specs.

namespace tilewright {

KernelFamily AttentionSplitFamily();
KernelFamily AttentionDecodeFamily();
KernelFamily AttentionMmaFamily();

/// kInvalidArgument if a name is taken.
Status AddAttentionFamilies(KernelFamilies& families);

/// Those of all catalogs for heads of `head_dim` elements; none if it is neither 64 nor 128.
std::vector<KernelSpec> AttentionSpecs(int head_dim, CudaArch arch);

}  // namespace tilewright
