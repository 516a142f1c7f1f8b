#pragma once

#include "device/cuda/launch.h"
#include "ops/experts/combine.h"
#include "tilewright/kernel_spec.h"

namespace tilewright::combine {

/// nullopt if a kernel of the spec, which passed the family's check, takes the problem.
std::optional<Rejection> CudaFeasible(const KernelSpec& spec, const Desc& desc);

/// The launch of a combine kernel: a CTA for each 1,024 values of a row. Pointers are the device's;
/// places are not read. Refused are views of other types than the spec's, shapes that do not fit
/// together or that CudaFeasible refuses, and an address that is no multiple of its element.
cuda::LaunchResult CombineLaunch(const KernelSpec& spec, const Args& args);

}  // namespace tilewright::combine
