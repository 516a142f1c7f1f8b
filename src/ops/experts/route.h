#pragma once

#include "tilewright/route.h"

namespace tilewright::route {

/// Every kernel of the operation.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// The oracle, in float64; any float types. Single thread; allocates.
Status Reference(const Args& args);

/// `places` holds the expert of every pair, best first, and gets their places; writes `offsets` and
/// `sources`. Experts are below the number of `args.logits`.
void PlacePairs(const Args& args);

}  // namespace tilewright::route
