#pragma once

#include "device/cuda/launch.h"
#include "ops/embedding/embedding.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// The launch of an embedding kernel: some CTAs for each row. `spec` passed the family's check;
/// pointers are the device's, and the ids are not looked at. Refused are views of other types than
/// the spec's, shapes that do not fit together, and an address that is no multiple of its element
/// (of two bytes for blocks). No workspace.
cuda::LaunchResult EmbeddingLaunch(const KernelSpec& spec, const embedding::Args& args);

}  // namespace tilewright
