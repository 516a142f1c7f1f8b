#pragma once

#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/gemm/cuda/gemm_q/gemm_q_kernel.cuh"
#include "ops/gemm/cuda/grouped/groups.cuh"

// gemm_q with tiles of the rows of one group each, and one CTA for each.

namespace tw {

using tilewright::cuda::GroupedGemmQParams;
using tilewright::cuda::GroupedTiles;

/// The whole kernel. `ring`: shared, aligned to 16 bytes.
template <Type kTypeW, Type kTypeC, Type kTypeY, Epilogue kEpilogue, int kTileM, int kTileN,
          int kWarps, int kParts, int kStages>
TW_DEVICE void GemmQGrouped(const GroupedGemmQParams& p, u8* ring) {
  using Cta = GemmQCta<kTypeW, kTileM, kTileN, kWarps, kParts, kStages, true>;
  __shared__ int sources[kTileM];
  WaitForPrerequisites();
  const int tiles_m = static_cast<int>(GroupedTiles(p.product.m, p.groups.count, kTileM));
  const int index = static_cast<int>(blockIdx.x), n0 = index / tiles_m * kTileN;
  const GroupTile tile = FindGroupTile(p.groups, p.product.m, kTileM, index % tiles_m);
  if (tile.rows == 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kTileM) {
    const int row = tile.first + thread;
    sources[thread] = thread >= tile.rows           ? -1
                      : p.groups.sources != nullptr ? p.groups.sources[row]
                                                    : row;
  }
  GemmQParams product = p.product;
  product.w = static_cast<const u8*>(product.w) + tile.group * p.groups.w_group_bytes;
  product.y = static_cast<u8*>(product.y) + tile.first * product.ldy * FloatBytes<kTypeY>();
  product.m = tile.rows;
  product.beta = 0.0f;
  __syncthreads();  // the table of rows is there
  Cta cta(product, 0, n0, ring, sources);
  cta.Run(0, tilewright::cuda::GemmQKTiles(product.k), false);
  __syncthreads();  // nobody reads the ring any more
  cta.Stage();
  __syncthreads();  // every warp's sums are there
  OutputTile<kTypeC, kTypeY, kEpilogue, kTileM, kTileN, 32 * kWarps>(
      product, 0, n0, OutputInPacks<kTypeC, kTypeY>(product),
      StagedSums<kTileM, kParts, Cta::Tile::kSumPitch>{reinterpret_cast<const float*>(ring)});
}

}  // namespace tw
