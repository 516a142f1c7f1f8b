#pragma once

#include "tilewright/norm.h"

namespace tilewright::norm {

/// Every kernel of this room, the oracle among them.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// The oracle, in float64; any float type of each view, f64 included. Single thread.
Status Reference(const Args& args);

}  // namespace tilewright::norm
