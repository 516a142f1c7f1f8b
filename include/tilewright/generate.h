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
  kEndOfText,    ///< the model ended its turn; the token is not among the result
  kContextFull,  ///< no position is left
  kCancelled,    ///< the callback or `cancel` said so
};
std::string_view StopReasonName(StopReason reason);

struct GenerateOptions {
  std::int32_t max_tokens = -1;  ///< -1: until the end of text or of the context
  SamplerOptions sampler;
  bool ignore_end_of_text = false;
  std::int32_t slot = 0;
  const std::atomic<bool>* cancel = nullptr;
  /// Called with every token as it is picked; false stops.
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

/// Feeds `prompt` to the session's slot from position 0 and generates. Errors: kInvalidArgument for
/// an empty prompt or one longer than the context (both lengths named); kNumeric where the logits
/// are not numbers; those of Session::Forward. `end_of_text`: tokens that end the generation
/// (Tokenizer::end_of_generation).
Result<GenerateResult> Generate(Session& session, std::span<const TokenId> prompt,
                                std::span<const TokenId> end_of_text,
                                const GenerateOptions& options);

struct PerplexityResult {
  std::int64_t tokens = 0;  ///< predicted
  double nll_mean = 0;      ///< natural logarithm, a token
  double perplexity = 0;
};

/// Cross-entropy over `tokens`, cut into windows of `window` (at most the context) that each start
/// from an empty cache: every token of a window but its first is predicted from those before it. A
/// last window of one token predicts nothing. `progress` gets the fraction done; false cancels.
Result<PerplexityResult> Perplexity(Session& session, std::span<const TokenId> tokens,
                                    std::int32_t window,
                                    const std::function<bool(double)>& progress = {});

}  // namespace tilewright
