#include "tilewright/generate.h"

#include <algorithm>
#include <chrono>

#include "core/text.h"

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Runs passes and picks from what they leave: from the best logits where these decide, which are
/// then found where they were computed; else from all.
class Decoder {
 public:
  Decoder(Session& session, Sampler& sampler) : session_(session), sampler_(sampler) {}

  Status Prefill(std::span<const TokenId> prompt, std::int32_t slot, std::int32_t position,
                 const std::atomic<bool>* cancel) {
    Status read = Keep(session_.Prefill(prompt, slot, position, cancel));
    top_ = sampler_.TopNeeded(logits_.size());
    return read;
  }
  /// `more`: a pass over the token that this one finds will follow. Where the best one decides and the
  /// device works beside the host, it is queued before this one has been waited for.
  Status Forward(const Row& row, bool more) {
    const std::span<const Row> rows(&row, 1);
    if (top_ == 1 && session_.asynchronous() && ForwardAhead(row, more)) return {};
    submitted_ = false;
    if (top_ == 0) return Keep(session_.Forward(rows));
    Result<TopLogits> best = session_.ForwardTop(rows, top_);
    if (best) {
      best_ = *best;
      return {};
    }
    if (best.error().code != ErrorCode::kUnsupported) return Fail(best.error());
    top_ = 0;  // so many are found on the host only
    return Keep(session_.Forward(rows));
  }
  Result<TokenId> Pick() {
    if (best_.k == 0) return sampler_.Sample(logits_);
    if (best_.ids[0] >= 0) return sampler_.SampleTop(best_.ids, best_.logits);
    if (Status read = Keep(session_.Logits()); !read) return Fail(read.error());
    return sampler_.Sample(logits_);  // which says what is wrong with them
  }

 private:
  Status Keep(const Result<std::span<const float>>& logits) {
    best_ = {};
    if (!logits) return Fail(logits.error());
    logits_ = *logits;
    return {};
  }

  /// Whether that worked; where it did not, the pass in turn does, or says why not.
  bool ForwardAhead(const Row& row, bool more) {
    if (!submitted_ && !session_.Submit(std::span(&row, 1))) return false;
    const Row next{kBestOfLast, row.position + 1, row.slot, true};
    submitted_ = more;
    if (more && !session_.Submit(std::span(&next, 1))) return false;
    const Result<std::span<const TokenId>> best = session_.Receive();
    if (!best || (*best)[0] < 0) return false;
    best_ = {.k = 1, .ids = *best, .logits = {}};
    return true;
  }

  Session& session_;
  Sampler& sampler_;
  bool submitted_ = false;  ///< the pass of the next row
  std::int32_t top_ = 0;    ///< of the best logits that decide; 0: all do
  TopLogits best_;          ///< of the last pass; k = 0: `logits_` are
  std::span<const float> logits_;
};

}  // namespace

std::int32_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t size = std::min(a.size(), b.size());
  const auto differ =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size), b.begin());
  return static_cast<std::int32_t>(differ.first - a.begin());
}

std::string_view StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "length";
    case StopReason::kEndOfText:
      return "end of text";
    case StopReason::kContextFull:
      return "context full";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Result<GenerateResult> Generate(Session& session, std::span<const TokenId> prompt,
                                std::span<const TokenId> end_of_text,
                                const GenerateOptions& options) {
  if (prompt.empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  if (prompt_tokens > session.context()) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("the prompt has {} tokens, but the context holds {}", prompt_tokens,
                       session.context()));
  }
  if (options.cached_tokens < 0 || options.cached_tokens > prompt_tokens) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("cached_tokens = {}, must be from 0 to the prompt's {}",
                       options.cached_tokens, prompt_tokens));
  }
  Result<Sampler> sampler = Sampler::Create(options.sampler);
  if (!sampler) return Fail(sampler.error());
  for (TokenId token : prompt) sampler->Accept(token);

  GenerateResult result;
  result.prompt_tokens = static_cast<std::int32_t>(prompt_tokens);
  result.cached_tokens = std::min(options.cached_tokens, result.prompt_tokens - 1);
  if (options.max_tokens > 0) {
    // At most what the context can hold: a caller may pass INT_MAX to mean "all".
    result.tokens.reserve(
        static_cast<std::size_t>(std::min(options.max_tokens, session.context())) + 1);
  }
  auto cancelled = [&] {
    return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
  };
  auto start = Clock::now();
  Decoder decoder(session, *sampler);
  Status ran = decoder.Prefill(prompt.subspan(static_cast<std::size_t>(result.cached_tokens)),
                               options.slot, result.cached_tokens, options.cancel);
  if (!ran && ran.error().code == ErrorCode::kCancelled && cancelled()) {
    result.reason = StopReason::kCancelled;
    return result;
  }
  result.prompt_seconds = SecondsSince(start);

  Clock::time_point decode_start = start;
  for (std::int32_t position = result.prompt_tokens;; ++position) {
    if (!ran) return Fail(ran.error());
    if (options.max_tokens >= 0 &&
        static_cast<std::int64_t>(result.tokens.size()) >= options.max_tokens) {
      result.reason = StopReason::kLength;
      break;
    }
    if (cancelled()) {
      result.reason = StopReason::kCancelled;
      break;
    }
    Result<TokenId> token = decoder.Pick();
    if (!token) return Fail(token.error());
    if (result.tokens.empty()) {
      result.first_token_seconds = SecondsSince(start);
      decode_start = Clock::now();
    }
    if (!options.ignore_end_of_text &&
        std::find(end_of_text.begin(), end_of_text.end(), *token) != end_of_text.end()) {
      result.reason = StopReason::kEndOfText;
      break;
    }
    sampler->Accept(*token);
    result.tokens.push_back(*token);
    if (options.on_token && !options.on_token(*token)) {
      result.reason = StopReason::kCancelled;
      break;
    }
    if (position >= session.context()) {
      result.reason = StopReason::kContextFull;
      break;
    }
    if (options.max_tokens >= 0 &&
        static_cast<std::int64_t>(result.tokens.size()) >= options.max_tokens)
      continue;
    const auto wanted = static_cast<std::int64_t>(result.tokens.size()) + 1;
    const bool more =
        (options.max_tokens < 0 || wanted < options.max_tokens) && position + 1 < session.context();
    ran = decoder.Forward({*token, position, options.slot, true}, more);
  }
  result.decode_seconds = SecondsSince(decode_start);
  return result;
}

}  // namespace tilewright
