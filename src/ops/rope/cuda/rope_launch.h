#pragma once

#include "device/cuda/launch.h"
#include "ops/rope/rope.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// Whether packs of four elements are aligned in every head of [head_dim, heads, rows].
bool FoursAligned(const TensorView& heads);

/// The launch of a rope kernel: a CTA for a row and some of its heads, in place, to another tensor
/// or into a KV cache. `spec` passed the family's check; all memory is the device's, that of
/// args.table too, which there has to be; positions and places are not looked at. Refused are views
/// of other types than the spec's, shapes that do not fit together, an odd head dimension, and an
/// address that is no multiple of its element. No workspace.
cuda::LaunchResult RopeLaunch(const KernelSpec& spec, const rope::Args& args);

}  // namespace tilewright
