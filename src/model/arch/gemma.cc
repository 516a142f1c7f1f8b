#include "model/arch/gemma.h"

#include <cmath>

namespace tilewright {

void ReadGemma(Hyperparameters& from, const GemmaRules& rules, ModelConfig& config) {
  ReadDense(from, config);
  ReadSlidingWindow(from, rules.windows, config);
  if (rules.attention_softcap)
    config.attention_softcap =
        ReadSoftcap(from, "attn_logit_softcapping", *rules.attention_softcap);
  config.logit_softcap = ReadSoftcap(from, "final_logit_softcapping", rules.logit_softcap);
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  if (config.layers == rules.layers_of_27b)
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.hidden / config.heads));
}

}  // namespace tilewright
