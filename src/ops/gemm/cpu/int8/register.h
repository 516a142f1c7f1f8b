#pragma once

#include "tilewright/gemm.h"

namespace tilewright {

/// Adds the int8-activation kernels: q4_0, q4_1, q8_0 and q6_k weights on every x86 instruction
/// set. They live as long as `registry`.
void AddGemmInt8(Registry& registry);

}  // namespace tilewright
