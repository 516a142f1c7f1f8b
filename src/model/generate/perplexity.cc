#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "tilewright/generate.h"

namespace tilewright {
namespace {

/// -log softmax(logits)[target], in double.
double NegativeLogLikelihood(std::span<const float> logits, TokenId target) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - max);
  return std::log(sum) + max - static_cast<double>(logits[static_cast<std::size_t>(target)]);
}

/// Rows of logits computed at once; 128 rows of a vocabulary of 128k would take 64 MB.
constexpr std::size_t kRowsAtOnce = 64;

}  // namespace

Result<PerplexityResult> Perplexity(Session& session, std::span<const TokenId> tokens,
                                    std::int32_t window,
                                    const std::function<bool(double)>& progress) {
  if (window < 2 || window > session.context()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("window = {}, must be from 2 to the context of {}", window, session.context()));
  }
  if (tokens.size() < 2)
    return Fail(ErrorCode::kInvalidArgument,
                Format("{} tokens of text; at least 2 are needed", tokens.size()));
  PerplexityResult result;
  double sum = 0;
  std::vector<Row> rows;
  const auto width = static_cast<std::size_t>(window);
  const std::size_t at_once = std::min(kRowsAtOnce, static_cast<std::size_t>(session.max_rows()));
  for (std::size_t from = 0; from + 1 < tokens.size(); from += width) {
    const std::size_t size = std::min(width, tokens.size() - from);
    for (std::size_t at = 0; at + 1 < size; at += at_once) {
      const std::size_t count = std::min(at_once, size - 1 - at);
      rows.clear();
      for (std::size_t i = 0; i < count; ++i) {
        rows.push_back({tokens[from + at + i], static_cast<std::int32_t>(at + i), 0, true});
      }
      Result<std::span<const float>> logits = session.Forward(rows);
      if (!logits) return Fail(logits.error());
      const std::size_t vocab = logits->size() / count;
      for (std::size_t i = 0; i < count; ++i) {
        const double nll =
            NegativeLogLikelihood(logits->subspan(i * vocab, vocab), tokens[from + at + i + 1]);
        if (!std::isfinite(nll)) {
          return Fail(ErrorCode::kNumeric,
                      Format("logits of token {} are not finite", from + at + i));
        }
        sum += nll;
        ++result.tokens;
      }
      if (progress &&
          !progress(static_cast<double>(from + at + count) / static_cast<double>(tokens.size()))) {
        return Fail(ErrorCode::kCancelled, "cancelled");
      }
    }
  }
  result.nll_mean = sum / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.nll_mean);
  return result;
}

}  // namespace tilewright
