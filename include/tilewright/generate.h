#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tilewright/model.h"
#include "tilewright/sampler.h"

namespace tilewright {

enum class StopReason {
  kLength,       ///< max_tokens were generated
  kEndOfText,    ///< the model ended its turn; the result does not include that token
  kContextFull,  ///< no position is left
  kCancelled,    ///< by the callback or `cancel`
};
std::string_view StopReasonName(StopReason reason);

struct GenerateOptions {
  std::int32_t max_tokens = -1;  ///< -1: until the end of text or of the context
  SamplerOptions sampler;
  bool ignore_end_of_text = false;
  std::int32_t slot = 0;
  const std::atomic<bool>* cancel = nullptr;
  /// Called with each token when it is picked; returning false stops.
  std::function<bool(TokenId)> on_token;
};

struct GenerateResult {
  std::vector<TokenId> tokens;
  StopReason reason = StopReason::kLength;
  double prompt_seconds = 0;       ///< to the logits of the prompt's last token
  double first_token_seconds = 0;  ///< to the first picked token
  double decode_seconds = 0;       ///< for the tokens after the first
  std::int32_t prompt_tokens = 0;

  double prompt_tokens_per_second() const {
    return prompt_seconds > 0 ? prompt_tokens / prompt_seconds : 0;
  }
  double decode_tokens_per_second() const {
    return decode_seconds > 0 && tokens.size() > 1
               ? static_cast<double>(tokens.size() - 1) / decode_seconds
               : 0;
  }
};

/// Feeds `prompt` to the session's slot from position 0 and generates until one of the tokens
/// `end_of_text` (Tokenizer::end_of_generation) or another limit. Errors: kInvalidArgument for an
/// empty prompt or one longer than the context (naming both lengths); kNumeric if logits are not
/// finite; those of Session::Forward.
Result<GenerateResult> Generate(Session& session, std::span<const TokenId> prompt,
                                std::span<const TokenId> end_of_text,
                                const GenerateOptions& options);

struct PerplexityResult {
  std::int64_t tokens = 0;  ///< number of predicted tokens
  double nll_mean = 0;      ///< negative log-likelihood per token, natural logarithm
  double perplexity = 0;
};

/// Cross-entropy over `tokens`, split into windows of `window` tokens (at most the context) that
/// each start with an empty cache. Every token of a window but its first is predicted from those
/// before it, so a last window of one token predicts nothing. `progress` receives the fraction
/// done; returning false cancels.
Result<PerplexityResult> Perplexity(Session& session, std::span<const TokenId> tokens,
                                    std::int32_t window,
                                    const std::function<bool(double)>& progress = {});

}  // namespace tilewright
