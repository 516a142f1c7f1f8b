#include "model/chat/forms.h"

#include <algorithm>
#include <array>

#include "tilewright/chat.h"

namespace tilewright {
namespace {

// None writes BOS in front: ChatTemplate::Encode adds it where the vocabulary asks for it.

constexpr std::string_view kChatMl =
    R"({%- for message in messages -%}
<|im_start|>{{ message.role ~ '\n' ~ message.content }}<|im_end|>{{ '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant{{ '\n' }}{%- endif -%})";

constexpr std::string_view kPhi4 =
    R"({%- for message in messages -%}
<|im_start|>{{ message.role ~ '<|im_sep|>' ~ message.content }}<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant<|im_sep|>{%- endif -%})";

constexpr std::string_view kLlama3 =
    R"({%- for message in messages -%}
<|start_header_id|>{{ message.role ~ '<|end_header_id|>\n\n' ~ message.content | trim }}<|eot_id|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|start_header_id|>assistant<|end_header_id|>{{ '\n\n' }}{%- endif -%})";

// Gemma has no system role: its message goes in front of the first user's.
constexpr std::string_view kGemma =
    R"({%- set ns = namespace(prefix='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.prefix = message.content | trim ~ '\n\n' -%}
  {%- else -%}
    <start_of_turn>{{ ('model' if message.role == 'assistant' else message.role) ~ '\n' }}
    {{- (ns.prefix if message.role != 'assistant' else '') ~ message.content | trim -}}
    <end_of_turn>{{ '\n' }}
    {%- if message.role != 'assistant' %}{% set ns.prefix = '' %}{% endif -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<start_of_turn>model{{ '\n' }}{%- endif -%})";

constexpr std::string_view kGptOss =
    R"({%- for message in messages -%}
<|start|>{{ message.role ~ '<|message|>' ~ message.content }}
{{- '<|return|>' if message.role == 'assistant' else '<|end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%})";

constexpr std::string_view kDeepSeek =
    R"({%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content ~ '\n\n' }}
{%- elif message.role == 'user' -%}
<｜User｜>{{ message.content }}
{%- elif message.role == 'assistant' -%}
<｜Assistant｜>{{ message.content }}<｜end▁of▁sentence｜>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<｜Assistant｜>{%- endif -%})";

constexpr std::string_view kPhi3 =
    R"({%- for message in messages -%}
<|{{ message.role }}|>{{ '\n' ~ message.content ~ '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{{ '\n' }}{%- endif -%})";

// The system message is part of the user's turn that follows it; a turn after an answer begins with
// BOS again.
constexpr std::string_view kLlama2 =
    R"({%- set ns = namespace(open=false, answered=false) -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{ message.content ~ eos_token }}
    {%- set ns.open = false -%}
    {%- set ns.answered = true -%}
  {%- else -%}
    {%- if not ns.open -%}
      {{ (bos_token if ns.answered else '') ~ '[INST] ' }}
    {%- endif -%}
    {%- set ns.open = message.role == 'system' -%}
    {%- if message.role == 'system' -%}
      {{ '<<SYS>>\n' ~ message.content ~ '\n<</SYS>>\n\n' }}
    {%- else -%}
      {{ message.content ~ ' [/INST]' }}
    {%- endif -%}
  {%- endif -%}
{%- endfor -%})";

constexpr std::string_view kMistral =
    R"({%- set ns = namespace(open=false) -%}
{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    {{ ' ' ~ message.content | trim ~ eos_token }}
    {%- set ns.open = false -%}
  {%- else -%}
    {{ ('' if ns.open else '[INST] ') ~ message.content }}
    {{- '\n\n' if message.role == 'system' else '[/INST]' }}
    {%- set ns.open = message.role == 'system' -%}
  {%- endif -%}
{%- endfor -%})";

constexpr ChatForm kForms[] = {
    {"phi4", {"<|im_start|>", "<|im_sep|>"}, kPhi4},
    {"chatml", {"<|im_start|>", "<|im_end|>"}, kChatMl},
    {"llama3", {"<|start_header_id|>", "<|eot_id|>"}, kLlama3},
    {"gemma", {"<start_of_turn>", "<end_of_turn>"}, kGemma},
    {"gpt-oss", {"<|start|>", "<|message|>"}, kGptOss},
    {"deepseek", {"<｜User｜>", "<｜Assistant｜>"}, kDeepSeek},
    {"phi3", {"<|assistant|>", "<|end|>"}, kPhi3},
    {"llama2", {"[INST]", "<<SYS>>"}, kLlama2},
    {"mistral", {"[INST]", "[/INST]"}, kMistral},
};

/// The first form of which all markers are there.
template <class IsThere>
const ChatForm* FormWhere(const IsThere& is_there) {
  const auto found = std::find_if(std::begin(kForms), std::end(kForms), [&](const ChatForm& form) {
    return std::all_of(std::begin(form.markers), std::end(form.markers), is_there);
  });
  return found == std::end(kForms) ? nullptr : found;
}

}  // namespace

std::span<const ChatForm> ChatForms() { return kForms; }

const ChatForm* FindChatForm(std::string_view name) {
  const auto forms = ChatForms();
  const auto found =
      std::find_if(forms.begin(), forms.end(), [&](const ChatForm& f) { return f.name == name; });
  return found == forms.end() ? nullptr : &*found;
}

const ChatForm* RecogniseChatForm(std::string_view source) {
  return FormWhere([&](std::string_view m) { return source.find(m) != std::string_view::npos; });
}

const ChatForm* RecogniseChatForm(const Tokenizer& tokenizer) {
  return FormWhere([&](std::string_view marker) {
    const TokenType type = tokenizer.type(tokenizer.Find(marker));
    return type == TokenType::kControl || type == TokenType::kUserDefined;
  });
}

std::span<const std::string_view> ChatFormNames() {
  static const auto names = [] {
    std::array<std::string_view, std::size(kForms)> sorted;
    std::transform(std::begin(kForms), std::end(kForms), sorted.begin(),
                   [](const ChatForm& form) { return form.name; });
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }();
  return names;
}

}  // namespace tilewright
