#pragma once

#include <span>
#include <string_view>

#include "tilewright/tokenizer.h"

namespace tilewright {

/// A known way to write conversations: what is used by name, or where a file's template is not
/// understood.
struct ChatForm {
  std::string_view name;
  /// Texts of which a template of this form contains all.
  std::string_view markers[2];
  std::string_view source;  ///< a template of our own that writes it
};

/// The most specific first: the first one whose markers a template contains is its form.
std::span<const ChatForm> ChatForms();
/// nullptr if there is none.
const ChatForm* FindChatForm(std::string_view name);
const ChatForm* RecogniseChatForm(std::string_view source);
/// The form whose markers are special tokens of the vocabulary; nullptr if there is none.
const ChatForm* RecogniseChatForm(const Tokenizer& tokenizer);

}  // namespace tilewright
