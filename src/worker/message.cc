#include "worker/message.h"

#include <array>
#include <charconv>
#include <cmath>

#include "core/text.h"

namespace tilewright::worker {
namespace {

constexpr std::string_view kMagic = "TWWM";
constexpr std::size_t kNumberBytes = 4, kFrameBytes = kMagic.size() + kNumberBytes;

void AppendNumber(std::size_t value, std::string& out) {
  for (std::size_t i = 0; i < kNumberBytes; ++i)
    out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}
std::size_t NumberAt(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < kNumberBytes; ++i)
    value |= std::size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

/// The shortest text that is read back as the same number.
std::string TextOf(double value) {
  std::array<char, 40> digits;
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}
bool Parse(std::string_view text, double& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && std::isfinite(value);
}
bool Parse(std::string_view text, bool& value) {
  value = text == "yes";
  return value || text == "no";
}
bool Parse(std::string_view text, Verdict& value) {
  for (int i = 0; i <= static_cast<int>(Verdict::kHang); ++i) {
    value = static_cast<Verdict>(i);
    if (VerdictName(value) == text) return true;
  }
  return false;
}
std::string TextOf(bool value) { return value ? "yes" : "no"; }

Result<Message> Unpack(std::string_view payload) {
  std::vector<std::string> words;
  while (!payload.empty()) {
    if (payload.size() < kNumberBytes)
      return Fail(ErrorCode::kCorrupt, "a word without its length");
    const std::size_t bytes = NumberAt(payload);
    payload.remove_prefix(kNumberBytes);
    if (bytes > payload.size())
      return Fail(ErrorCode::kCorrupt,
                  Format("a word of {} bytes with {} left", bytes, payload.size()));
    words.emplace_back(payload.substr(0, bytes));
    payload.remove_prefix(bytes);
  }
  if (words.empty()) return Fail(ErrorCode::kCorrupt, "a message without a verb");
  Message message;
  message.verb = std::move(words.front());
  words.erase(words.begin());
  message.words = std::move(words);
  return message;
}

}  // namespace

Result<std::string> Encode(const Message& message) {
  std::string payload;
  AppendNumber(message.verb.size(), payload);
  payload += message.verb;
  for (const std::string& word : message.words) {
    AppendNumber(word.size(), payload);
    payload += word;
  }
  if (payload.size() > kMostBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("a message of {} bytes: at most {} are sent", payload.size(), kMostBytes));
  }
  std::string frame(kMagic);
  AppendNumber(payload.size(), frame);
  return frame + payload;
}

Result<std::optional<Message>> MessageReader::Next() {
  const std::string_view start = std::string_view(bytes_).substr(0, kMagic.size());
  if (start != kMagic.substr(0, start.size())) {
    return Fail(ErrorCode::kCorrupt,
                Format("'{}' is not the beginning of a message", Printable(bytes_, 40)));
  }
  if (bytes_.size() < kFrameBytes) return std::optional<Message>();
  const std::size_t bytes = NumberAt(std::string_view(bytes_).substr(kMagic.size()));
  if (bytes > kMostBytes)
    return Fail(ErrorCode::kCorrupt,
                Format("a message of {} bytes: at most {} are sent", bytes, kMostBytes));
  if (bytes_.size() < kFrameBytes + bytes) return std::optional<Message>();
  Result<Message> message = Unpack(std::string_view(bytes_).substr(kFrameBytes, bytes));
  if (!message) return Fail(message.error());
  bytes_.erase(0, kFrameBytes + bytes);
  return std::optional(std::move(*message));
}

Message MessageOf(const Reply& reply) {
  const Tuner::Outcome& outcome = reply.outcome;
  return {"outcome",
          {std::string(VerdictName(outcome.verdict)), outcome.evidence, TextOf(outcome.us),
           TextOf(outcome.cost_us), TextOf(outcome.disturbed), TextOf(outcome.skipped),
           TextOf(reply.device_lost), TextOf(outcome.reference_us)}};
}

Result<Reply> ReplyOf(const Message& message) {
  constexpr std::size_t kWords = 8;
  Reply reply;
  Tuner::Outcome& outcome = reply.outcome;
  const std::vector<std::string>& words = message.words;
  if (message.verb != "outcome" || words.size() != kWords || !Parse(words[0], outcome.verdict) ||
      !Parse(words[2], outcome.us) || !Parse(words[3], outcome.cost_us) ||
      !Parse(words[4], outcome.disturbed) || !Parse(words[5], outcome.skipped) ||
      !Parse(words[6], reply.device_lost) || !Parse(words[7], outcome.reference_us)) {
    return Fail(ErrorCode::kCorrupt, Format("'{}' is not an outcome", Printable(message.verb, 40)));
  }
  outcome.evidence = words[1];
  return reply;
}

Message MessageOf(const Error& error) {
  return {"error", {ErrorCodeName(error.code), error.message}};
}

std::optional<Error> ErrorOf(const Message& message) {
  if (message.verb != "error" || message.words.size() != 2) return std::nullopt;
  Error error{ErrorCode::kInternal, message.words[1]};
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    if (message.words[0] == ErrorCodeName(code)) error.code = code;
  }
  return error;
}

}  // namespace tilewright::worker
