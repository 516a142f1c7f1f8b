#pragma once

#include <vector>

#include "tilewright/kernel_family.h"

/// Family `rmsnorm`: RMS normalisation, with the addition of a residual before it on request.
/// README.md of the room names the fields of its specs.

namespace tilewright {

KernelFamily RmsNormFamily();

/// kInvalidArgument if the name is taken.
Status AddNormFamilies(KernelFamilies& families);

/// The kernels for rows of `width` elements on one architecture: inputs of f32, bf16 and f16 with
/// weights of f32 and of the input's type, plain and with a residual of the input's type, all to
/// the input's type; with weights of f32 also f32 to bf16 and f16, plain and with a residual of
/// f32, and bf16 and f16 to f32, or to themselves with a residual of f32. The row is kept in
/// registers where 32 warps can. Empty for width < 1.
std::vector<KernelSpec> NormSpecs(int width, CudaArch arch);

}  // namespace tilewright
