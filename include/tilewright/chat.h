#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant" or another role, written verbatim
  std::string content;
};

enum class ChatFormat {
  kChatMl,  ///< <|im_start|>role\ncontent<|im_end|>\n
  /// <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>, with the content stripped of
  /// surrounding white space
  kLlama3,
};
/// "chatml", "llama3".
std::string_view ChatFormatName(ChatFormat format);

/// How a model expects a conversation to be written. Plain data: no Jinja is executed;
/// DetectChatTemplate recognises what a template does.
struct ChatTemplate {
  ChatFormat format = ChatFormat::kChatMl;
  /// The system message of a conversation that does not begin with one. SmolLM2 and Qwen2.5 have
  /// such a default.
  std::optional<std::string> default_system;
  /// Llama 3.1 and later: text at the start of the system message ("Cutting Knowledge Date: ..."),
  /// which is then always present.
  std::string system_preamble;

  bool operator==(const ChatTemplate&) const = default;
};

/// Recognises a template: the Jinja source in `tokenizer.chat_template`, by the special tokens that
/// it writes, or one of the names "chatml" and "llama3".
///
/// For plain conversations the rendering equals that of the template for SmolLM2, Qwen 2.5 and
/// Llama 3 to 3.3. Not rendered: tools, switches for thinking, and text computed by a template.
///
/// Errors: kNotFound if `source` is empty (the file has no template; callers may let the user
/// choose a ChatTemplate instead), kUnsupported for a template of another form; the message says
/// what to do.
Result<ChatTemplate> DetectChatTemplate(std::string_view source);

/// The prompt for `messages`, to be encoded with `parse_special`. It contains no BOS:
/// Tokenizer::Encode adds one if the vocabulary requires it. With `add_generation_prompt` it ends
/// with the header of the assistant's turn.
///
/// Special tokens that occur in a message's content are not escaped: callers must check untrusted
/// text.
std::string RenderChat(const ChatTemplate& chat_template, std::span<const ChatMessage> messages,
                       bool add_generation_prompt);

}  // namespace tilewright
