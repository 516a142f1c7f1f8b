#pragma once

#include "device/cuda/launch.h"
#include "ops/copy/kv_scatter.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// The launch of a kv_scatter kernel: some CTAs for each row. `spec` passed the family's check;
/// pointers are the device's, and positions, slots and page table are not looked at. Refused are
/// views of other types than the spec's, shapes that do not fit together, and an address that is no
/// multiple of its element. No workspace.
cuda::LaunchResult KvScatterLaunch(const KernelSpec& spec, const kv_scatter::Args& args);

/// Elements of a row at most: the grid has room for as many CTAs of single elements.
inline constexpr std::int64_t kMaxKvScatterRow = 1 << 22;

}  // namespace tilewright
