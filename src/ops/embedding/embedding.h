#pragma once

#include "tilewright/embedding.h"

namespace tilewright::embedding {

/// Every kernel of this room.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// The oracle, in float64; any type of table that DecodeRow knows, any float type of out. Single
/// thread; allocates.
Status Reference(const Args& args);

}  // namespace tilewright::embedding
