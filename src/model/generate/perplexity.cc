#include <cmath>

#include "core/text.h"
#include "model/generate/windows.h"

namespace tilewright {

Result<PerplexityResult> Perplexity(Session& session, std::span<const TokenId> tokens,
                                    const ScoringOptions& options,
                                    const std::function<bool(double)>& progress) {
  Session* const sessions[] = {&session};
  Mean nll;
  const auto take = [&](const Prediction& prediction) -> Status {
    const double value = NegativeLogLikelihood(prediction.logits[0], prediction.target);
    if (!std::isfinite(value)) return Fail(ErrorCode::kNumeric, "the logits are not finite");
    nll.Add(value);
    return {};
  };
  if (Status ran = Windows(sessions, tokens, options).Run(take, progress); !ran) {
    return Fail(ran.error());
  }
  return ToPerplexity(nll);
}

}  // namespace tilewright
