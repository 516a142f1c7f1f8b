#pragma once

#include "device/cuda/launch.h"
#include "ops/experts/route.h"
#include "tilewright/kernel_spec.h"

namespace tilewright::route {

/// nullopt if a kernel of the spec, which passed the family's check, takes the problem.
std::optional<Rejection> CudaFeasible(const KernelSpec& spec, const Desc& desc);

/// Where there are several CTAs: what they count, and a counter.
WorkspaceSize CudaWorkspace(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device);

/// The launch of a route kernel: a CTA for 32 rows. Pointers are the device's. Refused are views of
/// other types than the spec's, shapes that do not fit together or that CudaFeasible refuses, an
/// address that is no multiple of its element, and a workspace below CudaWorkspace.
cuda::LaunchResult RouteLaunch(const KernelSpec& spec, const Args& args,
                               const Workspace& workspace);

}  // namespace tilewright::route
