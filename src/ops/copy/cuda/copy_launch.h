#pragma once

#include "device/cuda/launch.h"
#include "ops/copy/copy.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// Elements, one a thread, that a launch has room for.
inline constexpr std::int64_t kMaxCopyElements = (std::int64_t{1} << 32) - (1 << 21);

/// The launch of a copy kernel, over as few and as long rows as the views allow. `spec` passed the
/// family's check: it converts its types, or copies elements of one type, whatever it is, as bytes.
/// Pointers are the device's. Refused are views of other types than the spec's, shapes that differ,
/// blocks apart, and an address that is no multiple of its element. No workspace.
cuda::LaunchResult CopyLaunch(const KernelSpec& spec, const copy::Args& args);

}  // namespace tilewright
