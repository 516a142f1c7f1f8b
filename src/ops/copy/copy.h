#pragma once

#include "tilewright/copy.h"

namespace tilewright::copy {

/// Every kernel that copies.
void AddKernels(Registry& registry);
/// The oracle alone.
void AddReference(Registry& registry);

/// The oracle: element by element through float64. Single thread.
Status Reference(const Args& args);

/// True for pairs of types that can be copied at all: equal, both floats, a block format to f32,
/// f16 or bf16, f32 to i8x32.
bool CanConvert(DataType src, DataType dst);

}  // namespace tilewright::copy
