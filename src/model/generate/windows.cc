#include "model/generate/windows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/text.h"

namespace tilewright {
namespace {

/// Rows of logits computed at once; 128 rows of a vocabulary of 128k would take 64 MB.
constexpr std::size_t kRowsAtOnce = 64;

}  // namespace

double NegativeLogLikelihood(std::span<const float> logits, TokenId target) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - max);
  return std::log(sum) + max - static_cast<double>(logits[static_cast<std::size_t>(target)]);
}

double Mean::error() const {
  if (count < 2) return 0;
  const double n = static_cast<double>(count);
  return std::sqrt(std::max(0.0, squares / n - value() * value()) / (n - 1));
}

PerplexityResult ToPerplexity(const Mean& nll) {
  return {.tokens = nll.count,
          .nll_mean = nll.value(),
          .nll_error = nll.error(),
          .perplexity = std::exp(nll.value())};
}

Status Windows::Check() const {
  std::int32_t context = std::numeric_limits<std::int32_t>::max();
  for (const Session* session : sessions_) context = std::min(context, session->context());
  if (options_.window < 2 || options_.window > context) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("window = {}, must be from 2 to the context of {}", options_.window, context));
  }
  const std::size_t least =
      options_.second_half_only ? static_cast<std::size_t>(options_.window) : 2;
  if (tokens_.size() < least) {
    return Fail(ErrorCode::kInvalidArgument,
                options_.second_half_only
                    ? Format("{} tokens of text are less than one window of {}", tokens_.size(),
                             options_.window)
                    : Format("{} tokens of text; at least 2 are needed", tokens_.size()));
  }
  return {};
}

Status Windows::Run(const std::function<Status(const Prediction&)>& take,
                    const std::function<bool(double)>& progress) const {
  if (Status valid = Check(); !valid) return valid;
  const auto width = static_cast<std::size_t>(options_.window);
  const std::size_t scored = options_.second_half_only ? width / 2 : 0;
  std::size_t at_once = kRowsAtOnce;
  for (const Session* session : sessions_) {
    at_once = std::min(at_once, static_cast<std::size_t>(session->max_rows()));
  }
  for (std::size_t from = 0; from + 1 < tokens_.size(); from += width) {
    const std::size_t size = std::min(width, tokens_.size() - from);
    if (options_.second_half_only && size < width) break;
    for (std::size_t at = 0; at + 1 < size; at += at_once) {
      const std::size_t count = std::min(at_once, size - 1 - at);
      if (Status ran = RunRows(from, at, count, scored, take); !ran) return ran;
      const double done = static_cast<double>(from + at + count);
      if (progress && !progress(done / static_cast<double>(tokens_.size()))) {
        return Fail(ErrorCode::kCancelled, "cancelled");
      }
    }
  }
  return {};
}

Status Windows::RunRows(std::size_t from, std::size_t at, std::size_t count, std::size_t scored,
                        const std::function<Status(const Prediction&)>& take) const {
  std::vector<Row> rows;
  for (std::size_t i = at; i < at + count; ++i) {
    const TokenId token = i == 0 && options_.bos != kNoToken ? options_.bos : tokens_[from + i];
    rows.push_back({token, static_cast<std::int32_t>(i), 0, i >= scored});
  }
  const std::size_t skipped = std::min(count, scored > at ? scored - at : 0);
  std::span<const float> logits[2];
  for (std::size_t s = 0; s < sessions_.size(); ++s) {
    Result<std::span<const float>> ran = sessions_[s]->Forward(rows);
    if (!ran) return Fail(ran.error());
    logits[s] = *ran;
  }
  for (std::size_t i = 0; i < count - skipped; ++i) {
    Prediction prediction;
    prediction.target = tokens_[from + at + skipped + i + 1];
    for (std::size_t s = 0; s < sessions_.size(); ++s) {
      const std::size_t vocab = logits[s].size() / (count - skipped);
      prediction.logits[s] = logits[s].subspan(i * vocab, vocab);
    }
    if (Status taken = take(prediction); !taken) {
      return Fail(taken.error().code,
                  Format("after token {}: {}", from + at + skipped + i, taken.error().message));
    }
  }
  return {};
}

}  // namespace tilewright
