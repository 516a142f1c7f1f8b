#include "ops/gemm/cuda/gemm_hopper_shares.h"

namespace tilewright {

cuda::GemmHopperTile GemmHopperTileOf(const KernelSpec& spec) {
  return {.tile_m = spec.tile_m,
          .tile_n = spec.tile_n,
          .cluster_m = spec.cluster_m,
          .cluster_n = spec.cluster_n,
          .split_k = spec.split_k,
          .ctas_per_sm = spec.params[1],
          .walk = spec.params[2]};
}

cuda::GemmHopperShares GemmHopperSharesOf(const KernelSpec& spec, const GemmShape& shape,
                                          const DeviceSpec& device) {
  return cuda::GemmHopperSharesOf(shape.m, shape.n, shape.k, GemmHopperTileOf(spec),
                                  device.sm_count);
}

WorkspaceSize GemmHopperWorkspace(const KernelSpec& spec, const GemmShape& shape,
                                  const DeviceSpec& device) {
  const cuda::GemmHopperShares shares = GemmHopperSharesOf(spec, shape, device);
  if (shares.count == 0) return {};
  const cuda::GemmHopperTile tile = GemmHopperTileOf(spec);
  const auto arrivals = static_cast<std::size_t>(cuda::GemmHopperArrivals(tile, shares));
  const auto partials = static_cast<std::size_t>(cuda::GemmHopperPartials(tile, shares));
  return {.barriers = arrivals * sizeof(std::uint32_t),
          .partials = partials * spec.tile_m * spec.tile_n * sizeof(float)};
}

}  // namespace tilewright
