#pragma once

#include "model/arch/architecture.h"

namespace tilewright {

// One for each file of an architecture; registry.cc lists them.
extern const Architecture kLlama;

}  // namespace tilewright
