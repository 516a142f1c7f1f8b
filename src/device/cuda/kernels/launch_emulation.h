#pragma once

#include <algorithm>
#include <iterator>

#include "device/cuda/kernels/host_emulation.h"
#include "device/cuda/launch.h"

// For tests only: a launch as an operation room makes it, on the CPU. Grid, threads, shared memory
// and parameters are the launcher's, so that a wrong one shows without a GPU. Include it after the
// emulation headers and before any .cuh.

namespace tw::emulation {

/// Calls kernel(params) as every thread of every CTA of `launch`, with its dynamic shared memory
/// poisoned. `Params` is what the kernel takes, `max_threads` its __launch_bounds__, `cluster` its
/// __cluster_dims__. False where a
/// GPU would refuse the launch or hang: a parameter block of another size, other threads than the
/// kernel is compiled for, threads that stop at different numbers of barriers. Illegal accesses
/// show in `fault`.
template <class Params, class Kernel>
bool RunLaunch(const tilewright::cuda::CudaLaunch& launch, unsigned int max_threads,
               Kernel&& kernel, Index cluster = {1, 1, 1}) {
  const std::optional<Params> params = launch.params.As<Params>();
  const auto one = [](const auto& extents, std::size_t first) {
    return std::all_of(extents.begin() + first, extents.end(), [](auto n) { return n == 1; });
  };
  if (!params || launch.block[0] < 1 || launch.block[0] > max_threads || !one(launch.block, 1) ||
      !one(launch.grid, 2) || !one(launch.cluster, 0) || launch.dynamic_smem_bytes > kMostSmem ||
      launch.grid[0] % cluster.x != 0 || launch.grid[1] % cluster.y != 0) {
    return false;
  }
  fault = false;
  std::fill(std::begin(smem), std::end(smem), static_cast<unsigned char>(0xff));
  smem_bytes = launch.dynamic_smem_bytes;
  const bool fits = SmemBegin(cluster.x * cluster.y) <= sizeof smem;
  const bool converged = fits && Run(
                                     {launch.grid[0], launch.grid[1], 1}, launch.block[0],
                                     [&] { kernel(*params); }, cluster);
  smem_bytes = kMostSmem;
  return converged;
}

}  // namespace tw::emulation
