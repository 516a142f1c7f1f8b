#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/gemm/cuda/gemm_simt_kernel.cuh"
#include "ops/gemm/cuda/grouped/groups.cuh"

// gemm_simt with tiles of the rows of one group each.

namespace tw {

using tilewright::cuda::GroupedGemmSimtParams;
using tilewright::cuda::GroupedTiles;

/// Which row of memory row `first` + m of all is.
struct SourceRows {
  const int* sources;  // null: it itself
  int first;
  TW_DEVICE i64 operator()(int m) const {
    return sources != nullptr ? sources[first + m] : first + m;
  }
};

template <class S>
TW_DEVICE void GemmSimtGrouped(const GroupedGemmSimtParams& p) {
  StartAfterPrerequisites();
  const int tiles_m = static_cast<int>(GroupedTiles(p.product.out.m, p.groups.count, S::kTileM));
  const int index = static_cast<int>(blockIdx.x);
  const GroupTile tile = FindGroupTile(p.groups, p.product.out.m, S::kTileM, index % tiles_m);
  if (tile.rows == 0) return;
  GemmMmaParams product = p.product;
  product.b = static_cast<const u8*>(product.b) + tile.group * p.groups.w_group_bytes;
  product.out.d =
      static_cast<u8*>(product.out.d) + tile.first * product.out.ldd * FloatBytes<S::kTypeD>();
  product.out.m = tile.rows;
  product.out.beta = 0.0f;
  GemmSimtTile<S>(product, 0, index / tiles_m * S::kTileN,
                  SourceRows{p.groups.sources, tile.first});
}

}  // namespace tw
