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
  double temperature = 0.8;  ///< 0 or below: the best token, always
  std::int32_t top_k = 40;   ///< only the k best; 0: all
  double top_p = 0.95;       ///< only the best that together have this probability; 1: all
  double min_p =
      0.05;  ///< only those with at least this part of the best one's probability; 0: all
  double repeat_penalty = 1.0;  ///< positive logits of recent tokens are divided by it, negative
                                ///< ones multiplied; 1: off
  std::int32_t repeat_window = 64;  ///< how many recent tokens that looks at; 0: none, -1: all
  std::uint64_t seed = 0;
};

/// Ok, or kInvalidArgument naming the field, its value and its range.
Status ValidateSamplerOptions(const SamplerOptions& options);

/// Picks tokens from logits, in this order, which is that of llama.cpp's default chain: repetition
/// penalty, top-k, top-p, min-p, temperature, then at random. Top-p and min-p thus look at
/// probabilities at temperature 1. At temperature 0 the best token after the penalty is taken and
/// nothing else matters.
///
/// Equal logits are ordered by id, the lowest first. The same options, tokens and logits give the
/// same picks on every machine: the generator is Random (core/random.h) and exponentials are
/// computed here, not by the C library, whose last bit varies.
///
/// One thread at a time. Allocates only while its buffers grow to the size of the vocabulary.
class Sampler {
 public:
  /// Errors: as ValidateSamplerOptions.
  static Result<Sampler> Create(const SamplerOptions& options);

  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();

  /// Records a token of the prompt or of the generation for the repetition penalty. Sample does not
  /// do it by itself. Tokens below 0 are ignored.
  void Accept(TokenId token);

  /// The next token. Minus infinity forbids a token.
  /// Errors: kNumeric for NaN or plus infinity, naming the token and how many were accepted before,
  /// and where every token is forbidden; kInvalidArgument for no logits. Cost: O(vocabulary); top-p
  /// without top-k sorts as many tokens as it keeps.
  Result<TokenId> Sample(std::span<const float> logits);

  /// Forgets accepted tokens and begins the random numbers again.
  void Reset();

  const SamplerOptions& options() const;

 private:
  struct Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
