#include "tilewright/chat.h"

#include <ctime>
#include <utility>

#include "core/text.h"
#include "model/chat/forms.h"
#include "model/jinja/template.h"

namespace tilewright {

struct ChatTemplate::Impl {
  jinja::Template source;
  ChatTokens tokens;
  std::string_view form;
  std::string warning;
};

namespace {

std::string FormList() {
  std::string list;
  for (const std::string_view name : ChatFormNames()) {
    list.append(list.empty() ? "" : ", ").append(name);
  }
  return list;
}

Result<jinja::Template> ParseForm(const ChatForm& form) {
  return jinja::Template::Parse(form.source);
}

std::tm LocalTime(std::chrono::system_clock::time_point now) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

jinja::Value MessageValue(const ChatMessage& message, jinja::Heap& heap) {
  using jinja::Value;
  return heap.MakeDict({{Value::Of("role"), Value::Of(message.role)},
                        {Value::Of("content"), Value::Of(message.content)}});
}

Result<std::string> RenderWith(const jinja::Template& source, const ChatTokens& tokens,
                               std::span<const ChatMessage> messages, const ChatOptions& options) {
  using jinja::Value;
  std::uint64_t bytes = 0;
  for (const ChatMessage& message : messages) bytes += message.content.size() + 256;
  jinja::Heap heap(jinja::kBudget + 64 * bytes);
  std::vector<Value> list;
  for (const ChatMessage& message : messages) list.push_back(MessageValue(message, heap));
  return source.Render(heap,
                       {{"messages", heap.MakeSequence(std::move(list))},
                        {"add_generation_prompt", Value(options.add_generation_prompt)},
                        {"tools", Value::None()},
                        {"documents", Value::None()},
                        {"bos_token", Value::Of(tokens.bos)},
                        {"eos_token", Value::Of(tokens.eos)},
                        {"unk_token", Value::Of(tokens.unk)},
                        {"pad_token", Value::Of(tokens.pad)}},
                       LocalTime(options.now));
}

/// The template of a file, if it can be run: a conversation that no template refuses tells.
Result<jinja::Template> ParseAndTry(std::string_view source, const ChatTokens& tokens) {
  Result<jinja::Template> parsed = jinja::Template::Parse(source);
  if (!parsed) return parsed;
  const ChatMessage turns[] = {{"user", "Hello"}, {"assistant", "Hi."}, {"user", "Thanks"}};
  for (const std::size_t count : {std::size_t{1}, std::size_t{3}}) {
    const Result<std::string> rendered =
        RenderWith(*parsed, tokens, std::span(turns).first(count), {});
    if (!rendered && rendered.error().code != ErrorCode::kInvalidArgument) {
      return Fail(rendered.error());
    }
  }
  return parsed;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::Create(std::string_view source, const ChatTokens& tokens) {
  return Open(source, tokens, nullptr);
}

Result<ChatTemplate> ChatTemplate::Open(std::string_view source, const ChatTokens& tokens,
                                        const Tokenizer* tokenizer) {
  if (source.empty()) {
    return Fail(ErrorCode::kNotFound,
                Format("tokenizer.chat_template is missing: this may not be a chat model; name a "
                       "form ({}) to chat with it anyway",
                       FormList()));
  }
  const auto make = [&](jinja::Template parsed, std::string_view form, std::string warning) {
    return ChatTemplate(
        std::make_shared<const Impl>(Impl{std::move(parsed), tokens, form, std::move(warning)}));
  };
  const ChatForm* form = FindChatForm(source);
  std::string why;
  if (form == nullptr) {
    Result<jinja::Template> own = ParseAndTry(source, tokens);
    if (own) return make(std::move(*own), "", "");
    form = RecogniseChatForm(source);
    if (form == nullptr && tokenizer != nullptr) form = RecogniseChatForm(*tokenizer);
    if (form == nullptr) {
      return Fail(ErrorCode::kUnsupported,
                  Format("tokenizer.chat_template is not understood ({}), and is in no known form: "
                         "write the prompt yourself, or name a form ({})",
                         own.error().message, FormList()));
    }
    why = Format("tokenizer.chat_template is not understood ({}): the form '{}' is used instead",
                 own.error().message, form->name);
  }
  Result<jinja::Template> known = ParseForm(*form);
  if (!known) return Fail(ErrorCode::kInternal, known.error().message);
  return make(std::move(*known), form->name, std::move(why));
}

Result<ChatTemplate> ChatTemplate::FromTokenizer(const Tokenizer& tokenizer,
                                                 std::string_view name) {
  const auto text = [&](TokenId id) { return std::string(tokenizer.text(id)); };
  const ChatTokens tokens{.bos = text(tokenizer.bos()),
                          .eos = text(tokenizer.eos()),
                          .unk = text(tokenizer.unk()),
                          .pad = text(tokenizer.pad())};
  if (!name.empty() && FindChatForm(name) == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("'{}' is no form of chats; there are {}", Printable(name, 40), FormList()));
  }
  return Open(name.empty() ? tokenizer.chat_template() : name, tokens, &tokenizer);
}

Result<std::string> ChatTemplate::Render(std::span<const ChatMessage> messages,
                                         const ChatOptions& options) const {
  return RenderWith(impl_->source, impl_->tokens, messages, options);
}

Result<std::vector<TokenId>> ChatTemplate::Encode(const Tokenizer& tokenizer,
                                                  std::span<const ChatMessage> messages,
                                                  const ChatOptions& options) const {
  const Result<std::string> text = Render(messages, options);
  if (!text) return Fail(text.error());
  Result<std::vector<TokenId>> ids = tokenizer.Encode(*text, {.add_special = false});
  if (!ids) return Fail(ids.error());
  const bool written = !ids->empty() && ids->front() == tokenizer.bos();
  if (tokenizer.add_bos() && !written) ids->insert(ids->begin(), tokenizer.bos());
  return ids;
}

std::string_view ChatTemplate::form() const { return impl_->form; }
std::string_view ChatTemplate::warning() const { return impl_->warning; }

}  // namespace tilewright
