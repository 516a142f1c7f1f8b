#pragma once

#include "tilewright/attention.h"

namespace tilewright::attention {

/// Every kernel of this room.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// The oracle, in float64; any float type of q and out, f64 included, and any type of cache that
/// DecodeRow knows. Single thread; allocates.
Status Reference(const Args& args);

}  // namespace tilewright::attention
