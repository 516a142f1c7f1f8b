#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Families `attention_split`, for few rows of each sequence and for anything else that must be
/// right, `attention_decode`, for few rows on tensor cores, `attention_mma` and, on Hopper,
/// `attention_hopper`, for many rows there, and `attention_simt`, for heads of every size that the
/// others are not compiled for. README.md of the room names the fields of their specs.

namespace tilewright {

KernelFamily AttentionSplitFamily();
KernelFamily AttentionDecodeFamily();
KernelFamily AttentionMmaFamily();
KernelFamily AttentionHopperFamily();
KernelFamily AttentionSimtFamily();

/// kInvalidArgument if a name is taken.
Status AddAttentionFamilies(KernelFamilies& families);

/// Whether the families but attention_simt are compiled for heads of `head_dim` elements.
bool IsAttentionHeadDim(int head_dim);

/// What a model with heads of `head_dim` elements may launch: those of the other families, else
/// all of attention_simt; none if that takes no such heads either.
std::vector<KernelSpec> AttentionSpecs(int head_dim, CudaArch arch);

}  // namespace tilewright
