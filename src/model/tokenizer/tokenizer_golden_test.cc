// Ids and bytes against those of llama.cpp, in tests/data/goldens/tokenizer_*.json (see
// tools/goldens).

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/tokenizer/utf8.h"
#include "tilewright/gguf.h"
#include "tilewright/tokenizer.h"

namespace tilewright {
namespace {

using Ids = std::vector<TokenId>;

std::string FromBase64(const std::string& text) {
  static const std::string kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  int have = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string::npos) break;
    bits = (bits << 6) | static_cast<unsigned>(digit);
    have += 6;
    if (have >= 8) {
      have -= 8;
      out.push_back(static_cast<char>((bits >> have) & 0xff));
    }
  }
  return out;
}

nlohmann::json Goldens(const std::string& name) {
  std::ifstream file(std::string(TILEWRIGHT_TEST_DATA) + "/goldens/tokenizer_" + name + ".json");
  return nlohmann::json::parse(file);
}

/// The SmolLM2 model, where TILEWRIGHT_MODEL says.
std::optional<std::string> ModelPath() {
  const char* path = std::getenv("TILEWRIGHT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path)) return std::nullopt;
  return path;
}

class TokenizerGoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    goldens_ = Goldens(GetParam());
    std::string path =
        std::string(TILEWRIGHT_TEST_DATA) + "/" + goldens_["vocabulary"].get<std::string>();
    if (std::string(GetParam()) == "smollm2") {
      const std::optional<std::string> model = ModelPath();
      if (!model)
        GTEST_SKIP()
            << "set TILEWRIGHT_MODEL to SmolLM2-135M-Instruct (GGUF) to check its vocabulary";
      path = *model;
    }
    Result<GgufFile> file = GgufFile::Open(path);
    ASSERT_TRUE(file) << file.error().message;
    Result<Tokenizer> tokenizer = Tokenizer::FromGguf(*file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_.emplace(std::move(*tokenizer));  // and the file is closed: nothing may point into it
  }

  Ids Encode(const std::string& text, bool add_special, bool parse_special) const {
    Result<Ids> ids =
        tokenizer_->Encode(text, {.add_special = add_special, .parse_special = parse_special});
    EXPECT_TRUE(ids) << ids.error().message;
    return ids.value_or(Ids{});
  }

  nlohmann::json goldens_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_P(TokenizerGoldenTest, EveryTextGivesTheIdsOfLlamaCpp) {
  ASSERT_GT(goldens_["cases"].size(), 100u);
  for (const auto& entry : goldens_["cases"]) {
    const std::string text = FromBase64(entry["text"].get<std::string>());
    EXPECT_EQ(Encode(text, false, false), entry["plain"].get<Ids>())
        << entry["name"] << ", special tokens as text";
    EXPECT_EQ(Encode(text, false, true), entry["special"].get<Ids>())
        << entry["name"] << ", special tokens parsed";
  }
}

TEST_P(TokenizerGoldenTest, IdsDecodeToTheBytesOfLlamaCppsPieces) {
  for (const auto& entry : goldens_["cases"]) {
    for (const std::string key : {"plain", "special"}) {
      const Result<std::string> bytes = tokenizer_->Decode(entry[key].get<Ids>(), true);
      ASSERT_TRUE(bytes) << bytes.error().message;
      EXPECT_EQ(*bytes, FromBase64(entry[key + "_bytes"].get<std::string>()))
          << entry["name"] << ", " << key;
    }
  }
}

TEST_P(TokenizerGoldenTest, BosEosAndTheEndsOfGenerationAreThoseOfLlamaCpp) {
  EXPECT_EQ(tokenizer_->bos(), goldens_["bos"].get<TokenId>());
  EXPECT_EQ(tokenizer_->eos(), goldens_["eos"].get<TokenId>());
  Ids expected = goldens_["add_special_prefix"].get<Ids>();
  const Ids a = Encode("a", false, false);
  expected.insert(expected.end(), a.begin(), a.end());
  const Ids suffix = goldens_["add_special_suffix"].get<Ids>();
  expected.insert(expected.end(), suffix.begin(), suffix.end());
  EXPECT_EQ(Encode("a", true, false), expected);
  const auto ends = tokenizer_->end_of_generation();
  EXPECT_EQ(Ids(ends.begin(), ends.end()), goldens_["end_of_generation"].get<Ids>());
  for (const TokenId id : ends) EXPECT_TRUE(tokenizer_->IsEndOfGeneration(id));
}

TEST_P(TokenizerGoldenTest, StreamingGivesWholeCharactersAndLosesNothing) {
  for (const auto& entry : goldens_["cases"]) {
    const Ids ids = entry["special"].get<Ids>();
    StreamDecoder decoder(*tokenizer_, true);
    std::string streamed;
    for (const TokenId id : ids) {
      const Result<std::string> text = decoder.Push(id);
      ASSERT_TRUE(text) << text.error().message;
      std::size_t i = 0;
      while (i < text->size()) {
        const auto lead = static_cast<unsigned char>((*text)[i]);
        const std::size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        ASSERT_TRUE(lead < 0x80 || lead >= 0xc2) << entry["name"];
        ASSERT_LE(i + size, text->size()) << entry["name"] << ": half a character";
        for (std::size_t k = 1; k < size; ++k) {
          ASSERT_EQ(static_cast<unsigned char>((*text)[i + k]) & 0xc0, 0x80) << entry["name"];
        }
        i += size;
      }
      streamed += *text;
    }
    streamed += decoder.Flush();
    std::string bytes = *tokenizer_->Decode(ids, true);
    std::string whole;
    TakeCompleteCharacters(bytes, whole);
    if (!bytes.empty()) whole += kReplacement;
    EXPECT_EQ(streamed, whole) << entry["name"];
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerGoldenTest,
                         ::testing::Values("gpt-2", "llama-bpe", "smollm", "smollm2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace tilewright
