#pragma once

#include "device/cuda/launch.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// Rows of y that a kernel with a row of CTAs for each can have: the grid's second extent.
inline constexpr std::int32_t kMostRowsOfGroups = 65535;

/// The launch of a kernel of GroupedFamilies() on a GPU of `sm_count` multiprocessors. `args` has groups
/// along m: num matrices of B behind each other (ld > 0), offsets of A and D, which are the same, and
/// perhaps indices of A. All pointers are the device's, offsets and indices too: they are not read
/// here. Refused are what the dense family refuses of the product of all rows, a beta that is not 0, and
/// groups that fit neither each other nor the kernel.
cuda::LaunchResult GroupedLaunch(const KernelSpec& spec, const GemmArgs& args, int sm_count);

}  // namespace tilewright
