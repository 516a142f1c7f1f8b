#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tilewright/result.h"
#include "tilewright/tokenizer.h"

namespace tilewright {

/// How the next token is picked. The defaults are those of llama.cpp; `{.temperature = 0}` is
/// greedy.
struct SamplerOptions {
  double temperature = 0.8;  ///< 0 or below: always the best token
  std::int32_t top_k = 40;   ///< only the k best; 0: all
  double top_p = 0.95;       ///< only the best that together have this probability; 1: all
  double min_p = 0.05;       ///< only those with at least this fraction of the best's; 0: all
  /// Positive logits of recent tokens are divided by it, negative ones multiplied; 1: off.
  double repeat_penalty = 1.0;
  std::int32_t repeat_window = 64;  ///< recent tokens that are penalised; 0: none, -1: all
  std::uint64_t seed = 0;
};

/// Ok, or kInvalidArgument naming the field, its value and its range.
Status ValidateSamplerOptions(const SamplerOptions& options);

/// Picks tokens from logits. The steps, in the order of llama.cpp's default chain: repetition
/// penalty, top-k, top-p, min-p, temperature, random draw. Top-p and min-p therefore use
/// probabilities at temperature 1. At temperature 0 the best token after the penalty is picked and
/// no other option matters.
///
/// Equal logits are ordered by id, lowest first. The same options, tokens and logits give the same
/// picks on every machine: the sampler has its own random generator and exponential function, since
/// those of the C library differ in the last bit.
///
/// One thread at a time. Allocates only until its buffers have reached the size of the vocabulary.
class Sampler {
 public:
  /// Errors: as ValidateSamplerOptions.
  static Result<Sampler> Create(const SamplerOptions& options);

  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  /// Records a token of the prompt or of the generated text for the repetition penalty; Sample does
  /// not do this. Tokens below 0 are ignored.
  void Accept(TokenId token);

  /// The next token. A logit of minus infinity excludes a token. Errors: kNumeric for NaN or plus
  /// infinity, naming the token and how many were accepted before, and if every token is excluded;
  /// kInvalidArgument for no logits. Cost: O(vocabulary); top-p without top-k sorts as many tokens
  /// as it keeps.
  Result<TokenId> Sample(std::span<const float> logits);

  /// How many of the best of `vocab` logits decide what Sample picks: 1 for greedy decoding, top_k
  /// where that is less than the vocabulary; 0, all of them, without such a limit and with a
  /// repetition penalty.
  std::int32_t TopNeeded(std::size_t vocab) const;

  /// What Sample picks from all logits, from the best TopNeeded of them in the order that ids of
  /// equal logits have there (Session::ForwardTop). Ids of -1 are no tokens. `logits` is not read
  /// for one. Errors: kInvalidArgument for sizes that differ or are no TopNeeded; kNumeric where
  /// the first id is -1: Sample says what is wrong with the logits.
  Result<TokenId> SampleTop(std::span<const TokenId> ids, std::span<const float> logits);

  /// Forgets accepted tokens and restarts the random number sequence.
  void Reset();

  const SamplerOptions& options() const;

 private:
  struct Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
