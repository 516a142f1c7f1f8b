#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tilewright/generate.h"

namespace tilewright {

/// Logits of one prediction that counts: those of each session, and the token that comes.
struct Prediction {
  std::span<const float> logits[2];  ///< the second is empty where there is one session
  TokenId target = kNoToken;
};

/// Runs the windows of a text through one session, or two side by side, and hands every prediction
/// that counts to `take`.
class Windows {
 public:
  Windows(std::span<Session* const> sessions, std::span<const TokenId> tokens,
          const ScoringOptions& options)
      : sessions_(sessions), tokens_(tokens), options_(options) {}

  Status Run(const std::function<Status(const Prediction&)>& take,
             const std::function<bool(double)>& progress) const;

 private:
  Status Check() const;
  /// Rows of the window at `from` from `at` on, `count` of them, of which those from `scored` on
  /// give logits.
  Status RunRows(std::size_t from, std::size_t at, std::size_t count, std::size_t scored,
                 const std::function<Status(const Prediction&)>& take) const;

  std::span<Session* const> sessions_;
  std::span<const TokenId> tokens_;
  ScoringOptions options_;
};

/// -log softmax(logits)[target], in double.
double NegativeLogLikelihood(std::span<const float> logits, TokenId target);

/// Mean of values and its standard error.
struct Mean {
  void Add(double value) {
    sum += value;
    squares += value * value;
    ++count;
  }
  double value() const { return sum / static_cast<double>(count); }
  /// 0 for fewer than two values.
  double error() const;

  double sum = 0, squares = 0;
  std::int64_t count = 0;
};

PerplexityResult ToPerplexity(const Mean& nll);

}  // namespace tilewright
