#pragma once

#include "model/arch/architecture.h"

namespace tilewright {

// The one list of architectures, one for each file.
extern const Architecture kErnie45;
extern const Architecture kExaone;
extern const Architecture kGemma;
extern const Architecture kGemma2;
extern const Architecture kGemma3;
extern const Architecture kGptOss;
extern const Architecture kInternLm2;
extern const Architecture kLlama;
extern const Architecture kPhi3;
extern const Architecture kQwen2;
extern const Architecture kQwen2Moe;
extern const Architecture kQwen3;
extern const Architecture kQwen3Moe;

inline constexpr const Architecture* kArchitectures[] = {
    &kLlama,    &kGemma2, &kGemma3, &kPhi3,      &kQwen2,   &kQwen2Moe, &kQwen3,
    &kQwen3Moe, &kGptOss, &kExaone, &kInternLm2, &kErnie45, &kGemma};

}  // namespace tilewright
