#pragma once

#include "tilewright/rope.h"

namespace tilewright::rope {

/// Every kernel of this room.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// The oracle, in float64 (angles, cosines, products); any float type of qk and out, f64 included.
/// Single thread; allocates.
Status Reference(const Args& args);

}  // namespace tilewright::rope
