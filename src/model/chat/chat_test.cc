#include "tilewright/chat.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/chat/forms.h"

namespace tilewright {
namespace {

const ChatTokens kTokens{.bos = "<s>", .eos = "</s>"};

ChatTemplate Make(std::string_view source, const ChatTokens& tokens = kTokens) {
  Result<ChatTemplate> made = ChatTemplate::Create(source, tokens);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? *made : *ChatTemplate::Create("chatml", {});
}

std::string Render(const ChatTemplate& chat_template, const std::vector<ChatMessage>& messages,
                   bool add_generation_prompt) {
  const Result<std::string> text =
      chat_template.Render(messages, {.add_generation_prompt = add_generation_prompt});
  return text ? *text : text.error().message;
}

TEST(ChatTest, FormsWriteWhatLlamaCppWritesAndTemplatesWhatJinjaDoes) {
  std::ifstream file(std::string(TILEWRIGHT_TEST_DATA) + "/goldens/chat.json");
  const nlohmann::json goldens = nlohmann::json::parse(file);
  const std::string own = goldens["smollm2_template"].get<std::string>();
  ASSERT_GE(goldens["conversations"].size(), 5u);
  for (const auto& conversation : goldens["conversations"]) {
    std::vector<ChatMessage> messages;
    for (const auto& message : conversation["messages"]) {
      messages.push_back({message[0].get<std::string>(), message[1].get<std::string>()});
    }
    const std::string name = conversation["name"].get<std::string>();
    // For what no model was trained on, llama.cpp's forms have rules of their own.
    const bool odd = name == "system_in_the_middle" || name == "empty";
    std::size_t compared = 0;
    for (const auto& [form, expected] : conversation["renderings"].items()) {
      const bool jinja = form == "smollm2_jinja";
      if ((!jinja && FindChatForm(form) == nullptr) || (odd && !jinja && form != "chatml"))
        continue;
      const ChatTemplate chat_template = Make(jinja ? own : form);
      EXPECT_EQ(Render(chat_template, messages, true), expected["prompt"].get<std::string>())
          << form << ", " << name;
      EXPECT_EQ(Render(chat_template, messages, false), expected["complete"].get<std::string>())
          << form << ", " << name;
      ++compared;
    }
    EXPECT_EQ(compared, odd ? 2 : ChatFormNames().size() + 1) << name;
  }
}

TEST(ChatTest, TemplatesOfFilesAreRun) {
  const ChatTemplate chat_template = Make(
      "{{ bos_token }}{% for m in messages %}[{{ loop.index }} {{ m['role'] | upper }}] "
      "{{ m.content | trim }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}?{% endif "
      "%}");
  EXPECT_EQ(chat_template.form(), "");
  EXPECT_EQ(chat_template.warning(), "");
  EXPECT_EQ(Render(chat_template, {{"user", " a "}, {"assistant", "b"}}, true),
            "<s>[1 USER] a</s>[2 ASSISTANT] b</s>?");
}

TEST(ChatTest, TemplatesWithDatesWriteTheOneGiven) {
  const ChatTemplate chat_template = Make("{{ strftime_now('%d %b %Y') }}");
  std::tm noon{};
  noon.tm_year = 124;
  noon.tm_mon = 6;
  noon.tm_mday = 26;
  noon.tm_hour = 12;
  noon.tm_isdst = -1;
  const auto now = std::chrono::system_clock::from_time_t(std::mktime(&noon));
  EXPECT_EQ(chat_template.Render({}, {.now = now}).value(), "26 Jul 2024");
}

TEST(ChatTest, ATemplateThatIsNotUnderstoodGivesWayToItsFormWithOneLine) {
  const struct {
    std::string_view source, form;
  } cases[] = {
      {"{% include 'x' %}<|im_start|><|im_end|>", "chatml"},
      {"{{ unknown() }}<|im_start|><|im_sep|><|im_end|>", "phi4"},
      {"{{ messages.missing.part }}<|start_header_id|><|end_header_id|><|eot_id|>", "llama3"},
      {"{% for i in range(100000) %}{% for i in range(100000) %}x{% endfor %}{% endfor %}"
       "<start_of_turn><end_of_turn>",
       "gemma"},
      {"{{ '<|start|>' '<|message|>' + 1 }}", "gpt-oss"},
      {"<｜User｜><｜Assistant｜>{{", "deepseek"},
      {"{{ '<|assistant|><|end|>' | unknown }}", "phi3"},
      {"{% if %}[INST] <<SYS>>", "llama2"},
      {"{% if %}[INST] [/INST]", "mistral"},
  };
  for (const auto& [source, form] : cases) {
    const ChatTemplate chat_template = Make(source);
    EXPECT_EQ(chat_template.form(), form) << source;
    EXPECT_NE(chat_template.warning().find(std::string("'") + std::string(form) + "'"),
              std::string::npos)
        << chat_template.warning();
    EXPECT_EQ(chat_template.warning().find('\n'), std::string::npos);
    EXPECT_EQ(Render(chat_template, {{"user", "a"}}, true),
              Render(Make(form), {{"user", "a"}}, true));
  }
}

TEST(ChatTest, WhatATemplateRefusesIsAnErrorWithItsWords) {
  const ChatTemplate chat_template = Make(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no systems here') }}"
      "{% endif %}{{ m.content }}{% endfor %}<|im_start|><|im_end|>");
  EXPECT_EQ(chat_template.form(), "") << "a refusal is no reason for another form";
  const ChatMessage system[] = {{"system", "x"}};
  const Result<std::string> refused = chat_template.Render(system);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("no systems here"), std::string::npos);
}

TEST(ChatTest, UnknownTemplatesSayWhyAndWhatToDo) {
  const Result<ChatTemplate> unknown = ChatTemplate::Create("a\n{{ nothing.at.all }}", kTokens);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(unknown.error().message.find("line 2: 'nothing'"), std::string::npos)
      << unknown.error().message;
  EXPECT_NE(unknown.error().message.find("chatml, deepseek, gemma"), std::string::npos)
      << unknown.error().message;
  const Result<ChatTemplate> missing = ChatTemplate::Create("", kTokens);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST(ChatTest, LongConversationsAreWithinTheBudget) {
  const ChatTemplate chat_template = Make("llama3");
  std::vector<ChatMessage> messages;
  for (int i = 0; i < 20000; ++i) messages.push_back({i % 2 == 0 ? "user" : "assistant", "a b c"});
  messages.push_back({"user", std::string(std::size_t{20} << 20, 'x')});
  const Result<std::string> text = chat_template.Render(messages);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_GT(text->size(), std::size_t{20} << 20);
}

/// A tokenizer with "<s>" (bos), "</s>", a token for each byte, and `more` of type `type_of_more`.
Tokenizer Bytes(bool add_bos, const std::string& chat_template,
                const std::vector<std::string>& more = {},
                TokenType type_of_more = TokenType::kControl) {
  static std::vector<std::string> texts;
  texts.clear();
  TokenizerSpec spec;
  spec.model = "llama";
  for (const char* text : {"<s>", "</s>"}) texts.emplace_back(text);
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    texts.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
  }
  const std::size_t plain = texts.size();
  texts.insert(texts.end(), more.begin(), more.end());
  for (const std::string& text : texts) {
    const std::size_t id = spec.tokens.size();
    spec.token_types.push_back(static_cast<std::int32_t>(id < 2       ? TokenType::kControl
                                                         : id < plain ? TokenType::kByte
                                                                      : type_of_more));
    spec.tokens.push_back(text);
    spec.scores.push_back(0);
  }
  spec.bos = 0;
  spec.eos = 1;
  spec.add_bos = add_bos;
  spec.add_space_prefix = false;
  spec.chat_template = chat_template;
  return Tokenizer::Create(spec).value();
}

TEST(ChatTest, BosIsInFrontOnce) {
  const ChatMessage hi[] = {{"user", "a"}};
  const std::vector<TokenId> with = {0, 2 + 'a', 1}, without = {2 + 'a', 1};
  for (const bool add_bos : {false, true}) {
    for (const std::string head : {"", "{{ bos_token }}"}) {
      const Tokenizer tokenizer = Bytes(add_bos, head + "{{ messages[0].content }}{{ eos_token }}");
      const ChatTemplate chat_template = ChatTemplate::FromTokenizer(tokenizer).value();
      EXPECT_EQ(chat_template.Encode(tokenizer, hi).value(),
                add_bos || !head.empty() ? with : without)
          << add_bos << head;
    }
  }
}

TEST(ChatTest, AFormTakesTheNameBeforeTheTemplate) {
  const Tokenizer tokenizer = Bytes(false, "{{ messages[0].content }}");
  EXPECT_EQ(ChatTemplate::FromTokenizer(tokenizer, "gemma").value().form(), "gemma");
  EXPECT_EQ(ChatTemplate::FromTokenizer(tokenizer, "gemma").value().warning(), "");
  const Result<ChatTemplate> unknown = ChatTemplate::FromTokenizer(tokenizer, "gemini");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
}

TEST(ChatTest, ATemplateThatSaysNothingGivesWayToTheFormOfTheVocabularyWithOneLine) {
  const std::string bad = "{% include 'x' %}";
  for (const ChatForm& form : ChatForms()) {
    const Tokenizer tokenizer =
        Bytes(true, bad, {std::string(form.markers[0]), "<|else|>", std::string(form.markers[1])});
    const Result<ChatTemplate> chat_template = ChatTemplate::FromTokenizer(tokenizer);
    ASSERT_TRUE(chat_template) << form.name << ": " << chat_template.error().message;
    EXPECT_EQ(chat_template->form(), form.name);
    EXPECT_NE(chat_template->warning().find("'include'"), std::string::npos);
    EXPECT_EQ(chat_template->warning().find('\n'), std::string::npos);
  }
  // What the template says counts before the vocabulary.
  const Tokenizer both =
      Bytes(true, bad + "<start_of_turn><end_of_turn>", {"<|im_start|>", "<|im_end|>"});
  EXPECT_EQ(ChatTemplate::FromTokenizer(both).value().form(), "gemma");
  // Tokens that are text like any other are no sign of a form, and neither is one of two.
  const Tokenizer text = Bytes(true, bad, {"[INST]", "[/INST]"}, TokenType::kNormal);
  EXPECT_FALSE(ChatTemplate::FromTokenizer(text));
  const Tokenizer half = Bytes(true, bad, {"<|start_header_id|>"});
  EXPECT_FALSE(ChatTemplate::FromTokenizer(half));
}

TEST(ChatTest, ATemplateThatLoopsForEverIsStoppedAndGivesWayToItsForm) {
  const auto loops = [](const std::string& condition) {
    const std::string loop = "{% for x in range(100000) %}", end = "{% endfor %}";
    return "{% if " + condition + " %}" + loop + loop + loop + "{{ x }}" + end + end + end +
           "{% endif %}{{ messages[0].content }}<|im_start|><|im_end|>";
  };
  const ChatTemplate always = Make(loops("true"));
  EXPECT_EQ(always.form(), "chatml");
  EXPECT_NE(always.warning().find("was stopped"), std::string::npos) << always.warning();
  // One that does so only for some conversations is stopped at these.
  const ChatTemplate sometimes = Make(loops("messages[0].content == 'spin'"));
  EXPECT_EQ(sometimes.form(), "");
  const ChatMessage fine[] = {{"user", "go"}}, spin[] = {{"user", "spin"}};
  EXPECT_TRUE(sometimes.Render(fine));
  const Result<std::string> stopped = sometimes.Render(spin);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kExhausted);
  EXPECT_NE(stopped.error().message.find("was stopped"), std::string::npos)
      << stopped.error().message;
}

TEST(ChatTest, EveryFormIsRecognisedInItself) {
  for (const ChatForm& form : ChatForms()) {
    const ChatForm* found = RecogniseChatForm(form.source);
    ASSERT_NE(found, nullptr) << form.name;
    EXPECT_EQ(found->name, form.name);
  }
  EXPECT_EQ(ChatForms().size(), ChatFormNames().size());
}

}  // namespace
}  // namespace tilewright
