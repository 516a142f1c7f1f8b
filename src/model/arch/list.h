#pragma once

#include "model/arch/architecture.h"

namespace tilewright {

// The one list of architectures, one for each file.
extern const Architecture kLlama;
extern const Architecture kPhi3;
extern const Architecture kQwen2;
extern const Architecture kQwen3;

inline constexpr const Architecture* kArchitectures[] = {&kLlama, &kPhi3, &kQwen2, &kQwen3};

}  // namespace tilewright
