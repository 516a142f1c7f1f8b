#pragma once

#include "tilewright/kv_scatter.h"

namespace tilewright::kv_scatter {

/// Every kernel that writes into KV caches.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// The oracle: element by element through float64. Single thread; allocates for q8_0.
Status Reference(const Args& args);

}  // namespace tilewright::kv_scatter
