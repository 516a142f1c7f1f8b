#pragma once

#include "device/cuda/launch.h"
#include "tilewright/device.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// The launch of a gemm_mma kernel: GemmMmaSplits CTAs for each output tile. `spec` passed the
/// family's check; pointers of `args` are the device's. Refused are the arguments that CheckGemmArgs
/// refuses, more CTAs than an int counts, and a workspace smaller than GemmMmaWorkspace. Sums are
/// added in the order of k: the same launch gives the same bits.
cuda::LaunchResult GemmMmaLaunch(const KernelSpec& spec, const GemmArgs& args,
                                 const DeviceSpec& device, const Workspace& workspace);

/// The same of a gemm_simt kernel: a CTA for each output tile, and no workspace.
cuda::LaunchResult GemmSimtLaunch(const KernelSpec& spec, const GemmArgs& args);

/// The same of a gemm_hopper kernel: as many CTAs as the `sm_count` multiprocessors of `device`
/// hold at once, or split_k for each output tile. Refused besides: operands that TMA cannot address, and a
/// workspace smaller than GemmHopperWorkspace. The launch has tensor maps of A, B and, where it is aligned
/// for it, D: EncodeMaps before it is queued. A map depends on address, extents and leading dimension of
/// its operand only.
cuda::LaunchResult GemmHopperLaunch(const KernelSpec& spec, const GemmArgs& args,
                                    const DeviceSpec& device, const Workspace& workspace);

}  // namespace tilewright
