#pragma once

#include "tilewright/tilewright.h"

namespace tilewright::test {

/// Norms on a GPU that compute nothing, compiled by NVRTC when they are bound.
inline constexpr const char* kTraps = "norm.test.traps";
inline constexpr const char* kIllegal = "norm.test.illegal";  ///< writes to an address that is none
inline constexpr const char* kSpins = "norm.test.spins";      ///< for ever

Status AddGpuFaults(norm::Registry& registry);

}  // namespace tilewright::test
