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
  /// So many tokens of the prompt's front are what the slot already holds: they are not evaluated
  /// again (the next turn of a conversation). At least the prompt's last token always is.
  std::int32_t cached_tokens = 0;
  /// Read before each pass, those of a long prompt too.
  const std::atomic<bool>* cancel = nullptr;
  /// Called with each token when it is picked; returning false stops.
  std::function<bool(TokenId)> on_token;
};

struct GenerateResult {
  std::vector<TokenId> tokens;
  StopReason reason = StopReason::kLength;
  double prompt_seconds = 0;       ///< to the logits of the prompt's last token; 0: not reached
  double first_token_seconds = 0;  ///< to the first picked token
  double decode_seconds = 0;       ///< for the tokens after the first
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;  ///< of these, that were not evaluated

  /// Of those that were evaluated.
  double prompt_tokens_per_second() const {
    return prompt_seconds > 0 ? (prompt_tokens - cached_tokens) / prompt_seconds : 0;
  }
  double decode_tokens_per_second() const {
    return decode_seconds > 0 && tokens.size() > 1
               ? static_cast<double>(tokens.size() - 1) / decode_seconds
               : 0;
  }
};

/// Feeds `prompt` to the session's slot from position 0, or behind what it holds of it, and
/// generates until one of the tokens `end_of_text` (Tokenizer::end_of_generation) or another limit.
/// Afterwards the slot holds the prompt and all tokens of the result but perhaps the last, which is
/// not fed where it is the end; of a prompt that was cancelled half way its front, what was cached at
/// least.
///
/// Errors: kInvalidArgument for an empty prompt, one longer than the context (naming both lengths)
/// or more cached tokens than it has; kNumeric if logits are not finite; those of Session::Forward.
Result<GenerateResult> Generate(Session& session, std::span<const TokenId> prompt,
                                std::span<const TokenId> end_of_text,
                                const GenerateOptions& options);

/// How many tokens `a` and `b` begin with in common: of the next prompt of a conversation, what a
/// slot already holds.
std::int32_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b);

/// How a text is cut into windows, each of which starts with an empty cache, and what of them
/// counts.
struct ScoringOptions {
  std::int32_t window = 512;  ///< tokens; from 2 to the context
  /// As llama.cpp's perplexity does it: only predictions made with at least window / 2 tokens before
  /// them count, and a last window that is not full is left out. Else every token of a window but
  /// its first is predicted, also in a last window that is shorter.
  bool second_half_only = false;
  /// Stands in for the first token of every window, kNoToken: nothing does. llama.cpp does so where
  /// the vocabulary says that BOS is added.
  TokenId bos = kNoToken;
};

struct PerplexityResult {
  std::int64_t tokens = 0;  ///< number of predicted tokens
  double nll_mean = 0;      ///< negative log-likelihood per token, natural logarithm
  double nll_error = 0;     ///< standard error of the mean
  double perplexity = 0;    ///< exp(nll_mean); its standard error is perplexity * nll_error
};

/// Cross-entropy over `tokens`. `progress` receives the fraction done; returning false cancels.
/// Errors: kInvalidArgument for a window out of range or a text of which nothing counts, kNumeric
/// for logits that are not finite, kCancelled; those of Session::Forward.
Result<PerplexityResult> Perplexity(Session& session, std::span<const TokenId> tokens,
                                    const ScoringOptions& options,
                                    const std::function<bool(double)>& progress = {});

/// How far the predictions of a model are from those of another one, over the same text.
struct DivergenceResult {
  PerplexityResult own, base;
  double log_ratio = 0;  ///< own.nll_mean - base.nll_mean: the logarithm of the perplexities' ratio
  double log_ratio_error = 0;  ///< its standard error; both models saw the same tokens
  /// Kullback-Leibler divergence of the predictions from those of the base, in nats: the mean over
  /// tokens, its standard error, and the distribution.
  double kl_mean = 0, kl_error = 0, kl_median = 0, kl_p99 = 0, kl_max = 0;
  double same_top = 0;  ///< share of tokens for which both have the same best one
  double same_top_error = 0;
};

/// Runs the windows of `tokens` through both sessions, side by side. Errors: as Perplexity, and
/// kInvalidArgument where the vocabularies differ in size.
Result<DivergenceResult> CompareModels(Session& own, Session& base, std::span<const TokenId> tokens,
                                       const ScoringOptions& options,
                                       const std::function<bool(double)>& progress = {});

}  // namespace tilewright
