#pragma once

#include <optional>

#include "device/cuda/launch.h"
#include "tilewright/device_spec.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/operation.h"

namespace tilewright {

/// How the CTAs of a product divide it.
struct GemmQrCut {
  /// Parts of whole k-tiles of k: at least so many that a CTA has a warp for each of its k-tiles; more where the output
  /// tiles fill the multiprocessors better then.
  int slices;
  int groups;  ///< CTAs that have the same part of k and the same rows of x, and share the output tiles
};
GemmQrCut GemmQrCutOf(const KernelSpec& spec, const GemmShape& shape, const DeviceSpec& device);

/// Sums and counters of the CTAs that share output tiles; nothing where none do.
WorkspaceSize GemmQrWorkspace(const KernelSpec& spec, const GemmShape& shape,
                              const DeviceSpec& device);

/// The launch of a kernel of gemm_qr on arguments in device memory, or why it cannot compute them: what CheckGemmQw
/// says of such operands, or a workspace that is not as GemmQrWorkspace says. Looks at addresses, not behind them.
cuda::LaunchResult GemmQrLaunch(const KernelSpec& spec, const GemmArgs& args,
                                const DeviceSpec& device, const Workspace& workspace);

}  // namespace tilewright
