#include "tilewright/chat.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tilewright {
namespace {

nlohmann::json Goldens() {
  std::ifstream file(std::string(TILEWRIGHT_TEST_DATA) + "/goldens/chat.json");
  return nlohmann::json::parse(file);
}

ChatTemplate Detect(const std::string& source) {
  const Result<ChatTemplate> chat_template = DetectChatTemplate(source);
  EXPECT_TRUE(chat_template) << chat_template.error().message;
  return chat_template.value_or(ChatTemplate{});
}

TEST(ChatTest, ConversationsAreWrittenAsTheGoldensHaveThem) {
  const nlohmann::json goldens = Goldens();
  // "smollm2_jinja" is what the model was trained on; llama.cpp's own ("smollm2") leaves out the
  // default system message.
  const std::pair<std::string, ChatTemplate> templates[] = {
      {"chatml", Detect("chatml")},
      {"llama3", Detect("llama3")},
      {"smollm2_jinja", Detect(goldens["smollm2_template"].get<std::string>())},
  };
  ASSERT_GE(goldens["conversations"].size(), 5u);
  for (const auto& conversation : goldens["conversations"]) {
    std::vector<ChatMessage> messages;
    for (const auto& message : conversation["messages"]) {
      messages.push_back({message[0].get<std::string>(), message[1].get<std::string>()});
    }
    for (const auto& [name, chat_template] : templates) {
      const auto& expected = conversation["renderings"][name];
      EXPECT_EQ(RenderChat(chat_template, messages, true), expected["prompt"].get<std::string>())
          << name << ", " << conversation["name"];
      EXPECT_EQ(RenderChat(chat_template, messages, false), expected["complete"].get<std::string>())
          << name << ", " << conversation["name"];
    }
  }
}

TEST(ChatTest, DefaultSystemMessageIsFoundWithEscapedAndWithRealLineEnds) {
  const char* condition = "{% if messages[0]['role'] != 'system' %}";
  const std::vector<std::string> sources = {
      std::string(condition) + R"({{ '<|im_start|>system\nIt\'s "me".<|im_end|>\n' }}{% endif %})",
      std::string(condition) +
          "{{ \"<|im_start|>system\nIt's \\\"me\\\".<|im_end|>\n\" }}{% endif %}",
      std::string(condition) + "<|im_start|>system\nIt's \"me\".<|im_end|>\n{% endif %}",
      // A template that first writes the caller's message, put together in an expression.
      R"({{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% else %})"
      R"({{ '<|im_start|>system\nIt\'s "me".<|im_end|>\n' }})",
  };
  for (const std::string& source : sources) {
    const ChatTemplate chat_template = Detect(source);
    EXPECT_EQ(chat_template.format, ChatFormat::kChatMl);
    EXPECT_EQ(chat_template.default_system, "It's \"me\".") << source;
  }
}

TEST(ChatTest, ChatMlWithoutALiteralSystemMessageHasNoDefault) {
  const ChatTemplate chat_template = Detect(
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' "
      "}}{% endfor %}");
  EXPECT_EQ(chat_template, ChatTemplate{});
  EXPECT_EQ(Detect("{{ '<|im_start|>system\\nx<|im_end|>").default_system, std::nullopt)
      << "no end of the literal";
}

TEST(ChatTest, Llama31BeginsEverySystemMessageWithItsDates) {
  const ChatTemplate chat_template = Detect(
      "{{- bos_token }}{%- set date_string = \"26 Jul 2024\" %}{{- "
      "\"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}"
      "{{- \"Cutting Knowledge Date: December 2023\\n\" }}{{- \"Today Date: \" + date_string + "
      "\"\\n\\n\" }}"
      "{{- system_message }}{{- \"<|eot_id|>\" }}");
  EXPECT_EQ(chat_template.format, ChatFormat::kLlama3);
  const std::string head =
      "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday "
      "Date: 26 Jul 2024\n\n";
  const std::vector<ChatMessage> user = {{"user", " Hi "}};
  EXPECT_EQ(RenderChat(chat_template, user, true),
            head +
                "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n");
  const std::vector<ChatMessage> both = {{"system", "Be brief.\n"}, {"user", "Hi"}};
  EXPECT_EQ(RenderChat(chat_template, both, false),
            head + "Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>");
}

TEST(ChatTest, UnknownTemplateSaysWhatToDoAndShowsItself) {
  const Result<ChatTemplate> unknown =
      DetectChatTemplate("{{ '[INST] ' + messages[0].content + ' [/INST]' }}");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(unknown.error().message.find("[INST]"), std::string::npos) << unknown.error().message;
  EXPECT_NE(unknown.error().message.find("chatml or llama3"), std::string::npos)
      << unknown.error().message;
  const Result<ChatTemplate> missing = DetectChatTemplate("");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST(ChatTest, NamesOfFormsAreAccepted) {
  for (const ChatFormat format : {ChatFormat::kChatMl, ChatFormat::kLlama3}) {
    EXPECT_EQ(Detect(std::string(ChatFormatName(format))).format, format);
  }
}

}  // namespace
}  // namespace tilewright
