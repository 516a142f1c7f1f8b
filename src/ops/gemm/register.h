#pragma once

#include "tilewright/gemm.h"

namespace tilewright {

/// Adds every GEMM kernel of this library. Called once, from src/api. The kernels live as long as
/// `registry`.
void AddGemm(Registry& registry);

}  // namespace tilewright
