#pragma once

#include "ops/attention/cpu/layout.h"

/// For tests only; no library file includes this header.

namespace tilewright {

AttentionFunctions AttentionOnEmulatedTiles();

}  // namespace tilewright
