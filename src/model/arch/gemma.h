#pragma once

#include <cstdint>
#include <optional>

#include "model/arch/hyperparameters.h"

namespace tilewright {

/// What the generations of Gemma differ in where a file does not say otherwise.
struct GemmaRules {
  WindowDefaults windows;
  std::optional<float> attention_softcap;  ///< none: files have no such key
  float logit_softcap = 0;                 ///< 0: none
  /// Of the 27B model, whose scores have a scale of their own that files do not say: it is known by
  /// its number of blocks.
  std::int32_t layers_of_27b = 0;
};

/// The keys of Gemma 2 and 3.
void ReadGemma(Hyperparameters& from, const GemmaRules& rules, ModelConfig& config);

}  // namespace tilewright
