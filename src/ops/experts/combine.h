#pragma once

#include "tilewright/combine.h"

namespace tilewright::combine {

/// Every kernel of the operation.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// The oracle, in float64; any float types. Single thread.
Status Reference(const Args& args);

/// kInvalidArgument names the first place that is no pair of x.
Status CheckPairs(const Args& args);

}  // namespace tilewright::combine
