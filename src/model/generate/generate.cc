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

}  // namespace

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
  Result<Sampler> sampler = Sampler::Create(options.sampler);
  if (!sampler) return Fail(sampler.error());
  for (TokenId token : prompt) sampler->Accept(token);

  GenerateResult result;
  result.prompt_tokens = static_cast<std::int32_t>(prompt_tokens);
  if (options.max_tokens > 0) {
    // At most what the context can hold: a caller may pass INT_MAX to mean "all".
    result.tokens.reserve(
        static_cast<std::size_t>(std::min(options.max_tokens, session.context())) + 1);
  }
  auto cancelled = [&] {
    return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
  };
  auto start = Clock::now();
  Result<std::span<const float>> logits = session.Prefill(prompt, options.slot, 0);
  result.prompt_seconds = SecondsSince(start);

  Clock::time_point decode_start = start;
  for (std::int32_t position = result.prompt_tokens;; ++position) {
    if (!logits) return Fail(logits.error());
    if (options.max_tokens >= 0 &&
        static_cast<std::int64_t>(result.tokens.size()) >= options.max_tokens) {
      result.reason = StopReason::kLength;
      break;
    }
    if (cancelled()) {
      result.reason = StopReason::kCancelled;
      break;
    }
    Result<TokenId> token = sampler->Sample(*logits);
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
    const Row row{*token, position, options.slot, true};
    logits = session.Forward(std::span<const Row>(&row, 1));
  }
  result.decode_seconds = SecondsSince(decode_start);
  return result;
}

}  // namespace tilewright
