#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/gemm/cuda/grouped/groups.cuh"

// A row of CTAs for each row of y: the kernels of gemv, with the row of x and the matrix that are its
// own. The matrix is read again for every row that has it, from the L2.

namespace tw {

using tilewright::cuda::GemvParams;
using tilewright::cuda::GroupedGemvParams;

/// The product of row blockIdx.y of y alone, to `product`; false where no group has it. Waits for the
/// kernels before this one, which write the groups.
template <Type kTypeX, Type kTypeY>
TW_DEVICE bool ProductOfRow(const GroupedGemvParams& p, GemvParams& product) {
  WaitForPrerequisites();
  const auto row = static_cast<int>(blockIdx.y);
  const int group = GroupOfRow(p.groups, row);
  if (group >= p.groups.count || p.groups.offsets[group] > row) return false;
  const i64 source = p.groups.sources != nullptr ? p.groups.sources[row] : row;
  product = p.product;
  product.x = static_cast<const u8*>(product.x) + source * product.ldx * FloatBytes<kTypeX>();
  product.w = static_cast<const u8*>(product.w) + group * p.groups.w_group_bytes;
  product.y = static_cast<u8*>(product.y) + row * product.ldy * FloatBytes<kTypeY>();
  product.beta = 0.0f;
  product.m = 1;
  return true;
}

}  // namespace tw
