#pragma once

#include "device/cuda/launch.h"
#include "ops/elementwise/elementwise.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// Elements, one a thread, that a launch has room for.
inline constexpr std::int64_t kMaxElementwiseElements = (std::int64_t{1} << 32) - (1 << 21);

/// The launch of an elementwise kernel, over as few and as long rows as the views allow. `spec`
/// passed the family's check; for functions of one operand its type_b is whatever it is. Pointers
/// are the device's. Refused are views of other types than the spec's, shapes that differ, and an
/// address that is no multiple of its element. No workspace.
cuda::LaunchResult ElementwiseLaunch(const KernelSpec& spec, const elementwise::Args& args);

}  // namespace tilewright
