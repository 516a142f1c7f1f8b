#pragma once

#include <optional>

#include "device/cuda/launch.h"
#include "tilewright/device_spec.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/operation.h"

namespace tilewright {

/// Why neither gemm_qw nor gemm_qr can compute this product: B in blocks of the spec; rows of A and of B at multiples
/// of 16 bytes. Looks at addresses, not behind them.
std::optional<Rejection> CheckGemmQwOperands(const KernelSpec& spec, const GemmArgs& args);

/// Why a kernel of gemm_qw cannot compute this product, whatever the workspace: that, or more than 2^31 - 1 k-tiles of
/// output tiles.
std::optional<Rejection> CheckGemmQw(const KernelSpec& spec, const GemmArgs& args);

/// The map of B, with boxes of a k-tile of `rows` rows.
cuda::TensorMapDesc GemmQwWeights(const KernelSpec& spec, const GemmArgs& args, int rows);

/// CTAs of this product, which divide its k-tiles evenly.
int GemmQwCtas(const KernelSpec& spec, const GemmShape& shape, const DeviceSpec& device);

/// Sums and counters of the CTAs that share output tiles; nothing where none do.
WorkspaceSize GemmQwWorkspace(const KernelSpec& spec, const GemmShape& shape,
                              const DeviceSpec& device);

/// The launch of a kernel of gemm_qw on arguments in device memory, or why it cannot compute them:
/// CheckGemmQw's reason, or a workspace that is not as GemmQwWorkspace says.
cuda::LaunchResult GemmQwLaunch(const KernelSpec& spec, const GemmArgs& args,
                                const DeviceSpec& device, const Workspace& workspace);

}  // namespace tilewright
