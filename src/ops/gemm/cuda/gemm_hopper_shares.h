#pragma once

#include "tilewright/cuda/gemm_params.h"
#include "tilewright/device_spec.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/operation.h"

namespace tilewright {

/// What decides the grid of a gemm_hopper kernel.
cuda::GemmHopperTile GemmHopperTileOf(const KernelSpec& spec);

/// Which output tiles of this product CTAs have parts of, none for a kernel that does not divide tiles.
/// Depends on the number of multiprocessors alone, so that the same product is summed in the same order
/// whenever it runs.
cuda::GemmHopperShares GemmHopperSharesOf(const KernelSpec& spec, const GemmShape& shape,
                                          const DeviceSpec& device);

/// Sums and counters of divided tiles; nothing where none are.
WorkspaceSize GemmHopperWorkspace(const KernelSpec& spec, const GemmShape& shape,
                                  const DeviceSpec& device);

}  // namespace tilewright
