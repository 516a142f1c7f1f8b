#pragma once

#include "tilewright/attention.h"

namespace tilewright::attention {

/// The blocked f32 kernels, one for each instruction set.
void AddTiledKernels(Registry& registry);

}  // namespace tilewright::attention
