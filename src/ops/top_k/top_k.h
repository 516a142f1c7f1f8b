#pragma once

#include "tilewright/top_k.h"

namespace tilewright::top_k {

/// Every kernel of this room.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// Hands the best of row `row` over (Args::tokens), where the call does so.
void HandOver(const Args& args, std::int64_t row, std::int32_t id);

/// The oracle, in float64; any float types, any k. Single thread; allocates.
Status Reference(const Args& args);

}  // namespace tilewright::top_k
