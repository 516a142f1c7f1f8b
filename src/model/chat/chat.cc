#include "tilewright/chat.h"

#include <fmt/format.h>

#include <utility>

namespace tilewright {
namespace {

constexpr std::string_view kSystemTurn = "<|im_start|>system";
constexpr std::string_view kEndOfTurn = "<|im_end|>";

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// The Jinja string literal that begins at source[at] with a quote, with its escapes resolved;
/// nullopt if it does not end.
std::optional<std::string> Literal(std::string_view source, std::size_t at) {
  const char quote = source[at];
  std::string out;
  for (std::size_t i = at + 1; i < source.size(); ++i) {
    if (source[i] == quote) return out;
    if (source[i] != '\\' || i + 1 == source.size()) {
      out.push_back(source[i]);
      continue;
    }
    const char escaped = source[++i];
    out.push_back(escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped);
  }
  return std::nullopt;
}

/// The first system message that a ChatML template spells out in full, not built from a message:
/// the default for conversations without one.
std::optional<std::string> DefaultSystem(std::string_view source) {
  for (std::size_t at = source.find(kSystemTurn); at != std::string_view::npos;
       at = source.find(kSystemTurn, at + 1)) {
    std::string text;
    const char before = at > 0 ? source[at - 1] : '\0';
    if (before == '\'' || before == '"') {
      text = Literal(source, at - 1).value_or("");
    } else if (before == '}') {  // outside of expressions; ends where the next one begins
      text = source.substr(at, source.find('{', at) - at);
    }
    const std::size_t end = text.find(kEndOfTurn);
    const std::size_t begin = kSystemTurn.size() + 1;
    if (end == std::string::npos || end < begin || text[begin - 1] != '\n') continue;
    return text.substr(begin, end - begin);
  }
  return std::nullopt;
}

/// What templates of Llama 3.1 and later put before the system message. They use today's date if it
/// is available; this uses their fallback date instead, so that the same conversation gives the
/// same prompt every day.
std::string SystemPreamble(std::string_view source) {
  constexpr std::string_view kCutting = "\"Cutting Knowledge Date: ";
  constexpr std::string_view kDate = "date_string = \"";
  const std::size_t cutting = source.find(kCutting);
  const std::size_t date = source.find(kDate);
  if (cutting == std::string_view::npos || date == std::string_view::npos) return "";
  const std::optional<std::string> knowledge = Literal(source, cutting);
  const std::optional<std::string> today = Literal(source, date + kDate.size() - 1);
  if (!knowledge || !today) return "";
  return *knowledge + "Today Date: " + *today + "\n\n";
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

void AppendTurn(const ChatTemplate& chat_template, std::string_view role, std::string_view content,
                std::string& out) {
  switch (chat_template.format) {
    case ChatFormat::kChatMl:
      out.append("<|im_start|>").append(role).append("\n").append(content).append("<|im_end|>\n");
      break;
    case ChatFormat::kLlama3:
      out.append("<|start_header_id|>")
          .append(role)
          .append("<|end_header_id|>\n\n")
          .append(content)
          .append("<|eot_id|>");
      break;
  }
}

}  // namespace

std::string_view ChatFormatName(ChatFormat format) {
  switch (format) {
    case ChatFormat::kChatMl:
      return "chatml";
    case ChatFormat::kLlama3:
      return "llama3";
  }
  return "";
}

Result<ChatTemplate> DetectChatTemplate(std::string_view source) {
  if (source.empty()) {
    return Fail(ErrorCode::kNotFound,
                "tokenizer.chat_template is missing: this may not be a chat model; name a format "
                "(chatml or llama3) to chat with it anyway");
  }
  ChatTemplate chat_template;
  if (source == "chatml") return chat_template;
  if (source == "llama3") {
    chat_template.format = ChatFormat::kLlama3;
    return chat_template;
  }
  if (Contains(source, "<|im_start|>") && Contains(source, kEndOfTurn)) {
    chat_template.default_system = DefaultSystem(source);
    return chat_template;
  }
  if (Contains(source, "<|start_header_id|>") && Contains(source, "<|end_header_id|>") &&
      Contains(source, "<|eot_id|>")) {
    chat_template.format = ChatFormat::kLlama3;
    chat_template.system_preamble = SystemPreamble(source);
    return chat_template;
  }
  std::string start(source.substr(0, 60));
  for (char& c : start) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return Fail(ErrorCode::kUnsupported,
              fmt::format("tokenizer.chat_template ('{}...') is neither in ChatML nor in "
                          "Llama 3 format: write the prompt "
                          "yourself, or name a format (chatml or llama3)",
                          start));
}

std::string RenderChat(const ChatTemplate& chat_template, std::span<const ChatMessage> messages,
                       bool add_generation_prompt) {
  const bool trims = chat_template.format == ChatFormat::kLlama3;
  std::string out;
  const bool has_system = !messages.empty() && messages.front().role == "system";
  if (!chat_template.system_preamble.empty()) {
    const std::string_view own =
        has_system ? std::string_view(messages.front().content) : std::string_view();
    AppendTurn(chat_template, "system",
               chat_template.system_preamble + std::string(trims ? Trim(own) : own), out);
    if (has_system) messages = messages.subspan(1);
  } else if (chat_template.default_system && !has_system && !messages.empty()) {
    AppendTurn(chat_template, "system", *chat_template.default_system, out);
  }
  for (const ChatMessage& message : messages) {
    AppendTurn(chat_template, message.role,
               trims ? Trim(message.content) : std::string_view(message.content), out);
  }
  if (!add_generation_prompt) return out;
  switch (chat_template.format) {
    case ChatFormat::kChatMl:
      out.append("<|im_start|>assistant\n");
      break;
    case ChatFormat::kLlama3:
      out.append("<|start_header_id|>assistant<|end_header_id|>\n\n");
      break;
  }
  return out;
}

}  // namespace tilewright
