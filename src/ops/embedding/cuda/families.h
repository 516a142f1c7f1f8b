#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Family `embedding`: rows of a table by id. README.md of the room names the fields of its specs.

namespace tilewright {

KernelFamily EmbeddingFamily();

/// kInvalidArgument if the name is taken.
Status AddEmbeddingFamilies(KernelFamilies& families);

/// The kernels for a table of `type` on one architecture, to f32, bf16 and f16. Empty for a type
/// that none of them reads.
std::vector<KernelSpec> EmbeddingSpecs(DataType type, CudaArch arch);

}  // namespace tilewright
