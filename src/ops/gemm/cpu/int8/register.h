#pragma once

#include "tilewright/gemm.h"

namespace tilewright {

/// Adds the int8-activation kernels: weights of every block format that layout.h has a
/// place for, on every x86 instruction set. They live as long as `registry`.
void AddGemmInt8(Registry& registry);

}  // namespace tilewright
