#pragma once

#include "tilewright/copy.h"

namespace tilewright::copy {

/// Every kernel that copies.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// The oracle: element by element through float64. Single thread.
Status Reference(const Args& args);

/// True for pairs of types that can be copied at all: equal, or both floats.
bool CanConvert(DataType src, DataType dst);

}  // namespace tilewright::copy
