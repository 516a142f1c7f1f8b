#pragma once

#include "device/cuda/launch.h"
#include "tilewright/device_spec.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/operation.h"

namespace tilewright {

/// How many CTAs share an output tile of this product, each with a part of k: few tiles leave
/// multiprocessors idle otherwise.
int GemmQSplits(const KernelSpec& spec, const GemmShape& shape, const DeviceSpec& device);

/// Sums and counters of the CTAs that share tiles; nothing where none do.
WorkspaceSize GemmQWorkspace(const KernelSpec& spec, const GemmShape& shape,
                             const DeviceSpec& device);

/// The launch of a kernel of gemm_q on arguments in device memory, or why it cannot compute them: B
/// in blocks of the spec, rows of A aligned to 16 bytes, rows of B to GemvRowAlignment; at most
/// 2^31 - 1 CTAs; a workspace as GemmQWorkspace says. Looks at addresses, not behind them.
cuda::LaunchResult GemmQLaunch(const KernelSpec& spec, const GemmArgs& args,
                               const DeviceSpec& device, const Workspace& workspace);

/// The same with one CTA for each output tile, and no workspace.
cuda::LaunchResult GemmQWholeLaunch(const KernelSpec& spec, const GemmArgs& args);

}  // namespace tilewright
