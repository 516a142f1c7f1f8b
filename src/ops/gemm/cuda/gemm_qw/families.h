#pragma once

#include <optional>
#include <vector>

#include "tilewright/kernel_family.h"

/// Family `gemm_qw`: 16 to 64 rows of bf16 times weights in q6_k and in block formats of which 256 values are a
/// multiple of 16 bytes, by wgmma. README.md names the fields of its specs.

namespace tilewright {

inline constexpr const char* kGemmQw = "gemm_qw";

/// Why neither gemm_qw nor gemm_qr has kernels for the types, orders, epilogue and architecture of a spec: the copy
/// engine brings a k-tile of W as it lies in memory, from a multiple of 16 bytes on.
std::optional<Rejection> CheckGemmQwTypes(const KernelSpec& spec);

KernelFamily GemmQwFamily();

/// Adds it. kInvalidArgument if the name is taken.
Status AddGemmQwFamily(KernelFamilies& families);

/// Rows and columns of an output tile, and warpgroups that share a strip of it.
struct GemmQwTile {
  int m, n, parts;
};

/// The kernel with such tiles, alone on a multiprocessor, and as many stages as there is room for. nullopt where the
/// family has none: for other types and architectures, or where fewer than three stages fit.
std::optional<KernelSpec> GemmQwSpec(DataType weight, DataType result, CudaArch arch,
                                     const GemmQwTile& tile, SpecEpilogue epilogue);

/// The kernels for weights of one type on one architecture, sm_90a: tiles of 16, 32 and 64 rows, with
/// results of bf16, also of gate and up as one product; of 32 rows results of f32, for logits. Empty
/// for other types and architectures. Deterministic order, each once.
std::vector<KernelSpec> GemmQwSpecsForWeight(DataType weight, CudaArch arch);

}  // namespace tilewright
