#pragma once

#include "model/arch/architecture.h"

namespace tilewright {

// The one list of architectures, one for each file.
extern const Architecture kLlama;

inline constexpr const Architecture* kArchitectures[] = {&kLlama};

}  // namespace tilewright
