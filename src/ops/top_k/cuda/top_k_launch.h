#pragma once

#include "device/cuda/launch.h"
#include "ops/top_k/top_k.h"
#include "tilewright/kernel_spec.h"

namespace tilewright::top_k {

/// nullopt if a kernel of the spec, which passed the family's check, takes the problem.
std::optional<Rejection> CudaFeasible(const KernelSpec& spec, const Desc& desc);

/// Where a row has several CTAs: what they find, and a counter for each row.
WorkspaceSize CudaWorkspace(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device);

/// The launch of a top_k kernel: a CTA for each 4,096 elements of each row. Pointers are the
/// device's. Refused are views of other types than the spec's, shapes that do not fit together or
/// that CudaFeasible refuses, an address that is no multiple of its element, and a workspace below
/// CudaWorkspace.
cuda::LaunchResult TopKLaunch(const KernelSpec& spec, const Args& args, const Workspace& workspace);

}  // namespace tilewright::top_k
