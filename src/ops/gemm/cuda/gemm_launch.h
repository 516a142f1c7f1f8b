#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "tilewright/kernel.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// The operands of one launch: D[m][n] = A[m][k] B[k][n]. Addresses are the device's; leading
/// dimensions are in elements.
struct GemmLaunch {
  std::int32_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldd = 0;
  std::uint64_t a = 0, b = 0, d = 0;
};

/// Why `spec` cannot run this launch, by the kernel's own preconditions: m, n or k below 1, more
/// output tiles than an int counts, a leading dimension below the contiguous extent; for
/// gemm_hopper an operand that TMA cannot address. nullopt when it can.
std::optional<Rejection> CheckGemmLaunch(const KernelSpec& spec, const GemmLaunch& launch);

/// CTAs along x of the grid (y and z are 1) for an output of m x n. gemm_mma: one per output tile.
/// gemm_hopper: as many as run at once on `sm_count` multiprocessors, at most one per tile, a
/// multiple of the cluster; the cluster size is part of the kernel (no launch attribute needed).
std::uint32_t GemmGrid(const KernelSpec& spec, std::int32_t m, std::int32_t n, int sm_count);

/// The arguments of cuTensorMapEncodeTiled for a two-dimensional operand, innermost dimension
/// first: CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 or FLOAT16, rank 2, CU_TENSOR_MAP_INTERLEAVE_NONE,
/// element strides 1 and 1, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
/// CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE (zeros).
struct TmaDesc {
  DataType type = DataType::kNone;
  std::uint64_t address = 0;            ///< a multiple of 16
  std::array<std::uint64_t, 2> size{};  ///< globalDim, elements
  std::uint64_t stride_bytes = 0;       ///< globalStrides[0]: from line to line
  std::array<std::uint32_t, 2> box{};   ///< boxDim, elements
  bool operator==(const TmaDesc&) const = default;
};

/// The tensor maps of GemmHopperParams. `launch` must pass CheckGemmLaunch. Without a map of D (its
/// address, leading dimension or n is no multiple of 16 bytes) the kernel does not read that of its
/// parameters.
struct GemmTensorMaps {
  TmaDesc a;
  TmaDesc b;
  std::optional<TmaDesc> d;
};
GemmTensorMaps GemmHopperMaps(const KernelSpec& spec, const GemmLaunch& launch);

}  // namespace tilewright
