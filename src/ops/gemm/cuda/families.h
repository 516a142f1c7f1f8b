#pragma once

#include <vector>

#include "tilewright/kernel_family.h"
#include "tilewright/result.h"

namespace tilewright {

/// Tiled GEMM on mma.sync, sm_80 and newer; any shape and leading dimension. README.md names the
/// fields of its specs.
KernelFamily GemmMmaFamily();

/// GEMM on TMA and wgmma, sm_90a only; operands with 16-byte aligned lines.
KernelFamily GemmHopperFamily();

/// Adds both.
Status AddGemmFamilies(KernelFamilies& families);

/// What a model with weights of type `weight` ([n][k], k contiguous) may need on `arch`: the
/// shipped kernels without addend that multiply activations of the same type, output of that type
/// or f32. Empty for types no family here takes.
std::vector<KernelSpec> GemmSpecsForWeight(DataType weight, CudaArch arch);

}  // namespace tilewright
