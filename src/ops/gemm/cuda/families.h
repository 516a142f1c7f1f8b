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

/// GEMM on the CUDA cores, sm_80 and newer: operands of f32 or of two types, k contiguous in both;
/// any shape, leading dimension and alignment. Its parameter block and grid are those of gemm_mma.
KernelFamily GemmSimtFamily();

/// Adds them all.
Status AddGemmFamilies(KernelFamilies& families);

/// What a model with weights of type `weight` ([n][k], k contiguous) may need on `arch`: the
/// shipped kernels without addend that multiply activations of the same type, output of that type
/// or f32; those of gemm_simt for f32, which no tensor core takes. Empty for types no family here
/// takes.
std::vector<KernelSpec> GemmSpecsForWeight(DataType weight, CudaArch arch);

}  // namespace tilewright
