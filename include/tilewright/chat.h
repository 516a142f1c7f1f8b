#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/result.h"
#include "tilewright/tokenizer.h"

namespace tilewright {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant" or another role that the template knows
  std::string content;
};

/// How a template spells tokens of the vocabulary; empty: there is none.
struct ChatTokens {
  std::string bos{}, eos{}, unk{}, pad{};
};

struct ChatOptions {
  /// Whether the text ends with the head of the assistant's turn, for it to be continued.
  bool add_generation_prompt = true;
  /// What templates that write a date take for now, in local time.
  std::chrono::system_clock::time_point now = std::chrono::system_clock::now();
};

/// How a model expects a conversation to be written: the template in its file, which is run by an
/// interpreter of the part of Jinja2 that such templates use (src/model/jinja/README.md), or a form
/// that is known by name. Immutable; copies share what they are made of. Threads: any number at
/// once.
class ChatTemplate {
 public:
  /// `source`: a Jinja template, or the name of a form (ChatFormNames).
  ///
  /// A template that is not understood, or fails for a short conversation, gives way to the form
  /// that is recognised by the special tokens in it; warning() then says so, in one line.
  ///
  /// Errors: kNotFound if `source` is empty (the file has no template; callers may let the user
  /// name a form instead); kUnsupported if the template is not understood and no form recognised.
  static Result<ChatTemplate> Create(std::string_view source, const ChatTokens& tokens);
  /// Create with the tokenizer's template and tokens, or with the form `name`, if not empty. A
  /// template that is not understood and names no special tokens gives way to the form whose
  /// special tokens the vocabulary has.
  static Result<ChatTemplate> FromTokenizer(const Tokenizer& tokenizer, std::string_view name = {});

  /// The text of a conversation, as Python's jinja2 renders it. Special tokens that occur in a
  /// message's content are not escaped: callers must check untrusted text.
  ///
  /// Errors: kInvalidArgument, with its message, if the template refuses the conversation (a role
  /// that it does not know, turns that do not alternate); kExhausted if it would take too much time
  /// or memory; kUnsupported for what fails in it.
  Result<std::string> Render(std::span<const ChatMessage> messages,
                             const ChatOptions& options = {}) const;

  /// The tokens of Render's text: special tokens are recognised, and BOS is in front once, whether
  /// the template writes it or the vocabulary asks for it. `tokenizer` is that of the model.
  Result<std::vector<TokenId>> Encode(const Tokenizer& tokenizer,
                                      std::span<const ChatMessage> messages,
                                      const ChatOptions& options = {}) const;

  /// The name of the form that is used; empty: the file's own template.
  std::string_view form() const;
  /// Why the file's own template is not used; empty if it is, or a form was asked for.
  std::string_view warning() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  static Result<ChatTemplate> Open(std::string_view source, const ChatTokens& tokens,
                                   const Tokenizer* tokenizer);

  std::shared_ptr<const Impl> impl_;
};

/// "chatml", "deepseek", "gemma", "gpt-oss", "llama2", "llama3", "mistral", "phi3", "phi4".
std::span<const std::string_view> ChatFormNames();

}  // namespace tilewright
