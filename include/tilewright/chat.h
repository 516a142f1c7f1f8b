#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant", or what else the model was trained on;
                     ///< written as it is
  std::string content;
};

enum class ChatFormat {
  kChatMl,  ///< <|im_start|>role\ncontent<|im_end|>\n
  kLlama3,  ///< <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>, content without
            ///< white space around it
};
/// "chatml", "llama3".
std::string_view ChatFormatName(ChatFormat format);

/// How a model wants a conversation written. Plain data; Jinja is not run: DetectChatTemplate
/// recognises what a template does.
struct ChatTemplate {
  ChatFormat format = ChatFormat::kChatMl;
  /// Stands in front as a system message where the conversation does not begin with one. SmolLM2
  /// and Qwen2.5 have one.
  std::optional<std::string> default_system;
  /// Llama 3.1 and later: text that begins the system message ("Cutting Knowledge Date: ..."),
  /// which is then always there.
  std::string system_preamble;

  bool operator==(const ChatTemplate&) const = default;
};

/// Recognises the Jinja source in `tokenizer.chat_template`, or one of the names "chatml" and
/// "llama3", by the special tokens that it writes.
///
/// For plain conversations the rendering equals that of the template for SmolLM2, Qwen 2.5 and
/// Llama 3 to 3.3. Not rendered: tools, switches for thinking, and texts that a template computes.
///
/// Errors: kNotFound if `source` is empty (the file has no template; callers may take a plain
/// ChatTemplate by the user's wish), kUnsupported for a template of another form; the message tells
/// what to do.
Result<ChatTemplate> DetectChatTemplate(std::string_view source);

/// The prompt for `messages`, to be encoded with `parse_special`. It holds no BOS:
/// Tokenizer::Encode adds it where the vocabulary wants one. `add_generation_prompt`: ends with the
/// header of the assistant's turn.
///
/// Special tokens written in a content are not escaped, as everywhere: who passes on text of
/// strangers must check it.
std::string RenderChat(const ChatTemplate& chat_template, std::span<const ChatMessage> messages,
                       bool add_generation_prompt);

}  // namespace tilewright
