// Ids and bytes against those of llama.cpp, in tests/data/goldens/tokenizer_*.json (see
// tools/goldens), and random texts: a few in tests/data/tokenizer_cases, or any number where
// TILEWRIGHT_TOKENIZER_CASES says (tools/goldens/make_random_cases.py, compare_tokenizers.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
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

/// The ids under `key`; "special" is left out where it is the same as "plain".
Ids IdsOf(const nlohmann::json& entry, const std::string& key) {
  return entry[entry.contains(key) ? key : "plain"].get<Ids>();
}

/// The bytes of the pieces of IdsOf; left out where they are the text.
std::string BytesOf(const nlohmann::json& entry, const std::string& key) {
  const std::string of = entry.contains(key) ? key : "plain";
  const auto bytes = entry.find(of + "_bytes");
  return FromBase64((bytes == entry.end() ? entry["text"] : *bytes).get<std::string>());
}

std::string Pieces(const Tokenizer& tokenizer, const Ids& ids) {
  std::string out;
  for (const TokenId id : ids) {
    const Status status = tokenizer.AppendPiece(id, true, out);
    EXPECT_TRUE(status) << status.error().message;
  }
  return out;
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
    EXPECT_EQ(Encode(text, false, false), IdsOf(entry, "plain"))
        << entry["name"] << ", special tokens as text";
    EXPECT_EQ(Encode(text, false, true), IdsOf(entry, "special"))
        << entry["name"] << ", special tokens parsed";
  }
}

TEST_P(TokenizerGoldenTest, IdsDecodeToTheBytesOfLlamaCppsPieces) {
  for (const auto& entry : goldens_["cases"]) {
    for (const std::string key : {"plain", "special"}) {
      EXPECT_EQ(Pieces(*tokenizer_, IdsOf(entry, key)), BytesOf(entry, key))
          << entry["name"] << ", " << key;
    }
  }
}

TEST_P(TokenizerGoldenTest, TextsThatTheVocabularyCanSpellSurviveEncodingAndDecoding) {
  int whole = 0;
  for (const auto& entry : goldens_["cases"]) {
    const std::string text = FromBase64(entry["text"].get<std::string>());
    NormalizeBuffer buffer;
    const bool well_formed = Normalize(text, buffer).bytes.data() == text.data();
    // The pieces show whether bytes are lost, but for the space in front.
    const std::string bytes = BytesOf(entry, "plain");
    if (!well_formed || text.find("\xe2\x96\x81") != std::string::npos) continue;
    if (bytes != text && bytes != " " + text) continue;
    for (const std::string key : {"plain", "special"}) {
      const Ids ids = IdsOf(entry, key);
      const bool special = std::any_of(ids.begin(), ids.end(), [this](TokenId id) {
        const TokenType type = tokenizer_->type(id);
        return type == TokenType::kControl || type == TokenType::kUserDefined ||
               type == TokenType::kUnknown;
      });
      // Phi-3 drops white space after those.
      if (special && std::string(GetParam()) == "spm-phi-3") continue;
      EXPECT_EQ(tokenizer_->Decode(ids, true).value(), text) << entry["name"] << ", " << key;
    }
    ++whole;
  }
  EXPECT_GT(whole, 150);
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
    const Ids ids = IdsOf(entry, "special");
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
    std::string bytes = Pieces(*tokenizer_, ids);
    std::string whole;
    TakeCompleteCharacters(bytes, whole);
    if (!bytes.empty()) whole += kReplacement;
    EXPECT_EQ(streamed, whole) << entry["name"];
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerGoldenTest,
                         ::testing::Values("gpt-2", "llama-bpe", "smollm", "smollm2", "qwen2",
                                           "dbrx", "tekken", "gpt-4o", "falcon", "deepseek-llm",
                                           "deepseek-coder", "deepseek-v3", "spm", "spm-noprefix",
                                           "spm-phi-3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

/// Reads little-endian numbers and bytes from a file of random cases.
class CaseReader {
 public:
  explicit CaseReader(const std::filesystem::path& path) : file_(path, std::ios::binary) {}
  std::optional<std::uint32_t> Number() {
    std::uint32_t value = 0;
    if (!file_.read(reinterpret_cast<char*>(&value), sizeof value)) return std::nullopt;
    return value;
  }
  std::string Bytes(std::size_t size) {
    std::string bytes(size, '\0');
    file_.read(bytes.data(), static_cast<std::streamsize>(size));
    return bytes;
  }
  Ids Tokens(std::size_t size) {
    Ids ids(size);
    file_.read(reinterpret_cast<char*>(ids.data()),
               static_cast<std::streamsize>(size * sizeof(TokenId)));
    return ids;
  }

 private:
  std::ifstream file_;
};

TEST(TokenizerRandomCases, GiveTheIdsOfLlamaCpp) {
  const std::filesystem::path data = TILEWRIGHT_TEST_DATA;
  const char* given = std::getenv("TILEWRIGHT_TOKENIZER_CASES");
  const std::filesystem::path folder = given != nullptr ? given : data / "tokenizer_cases";
  int vocabularies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".cases") continue;
    const std::string name = entry.path().stem().string();
    ++vocabularies;
    const auto vocabulary = (given != nullptr ? folder : data) / (name + ".gguf");
    Result<GgufFile> file = GgufFile::Open(vocabulary.string());
    ASSERT_TRUE(file) << file.error().message;
    const Result<Tokenizer> tokenizer = Tokenizer::FromGguf(*file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    CaseReader reader(entry.path());
    int count = 0;
    int wrong = 0;
    while (const std::optional<std::uint32_t> size = reader.Number()) {
      const std::string text = reader.Bytes(*size);
      const bool parse = reader.Number().value() != 0;
      const Ids expected = reader.Tokens(reader.Number().value());
      ++count;
      const Ids ids =
          tokenizer->Encode(text, {.add_special = false, .parse_special = parse}).value();
      if (ids == expected) continue;
      ++wrong;
      if (wrong <= 3) {
        ADD_FAILURE() << name << ", text " << ::testing::PrintToString(text) << ": "
                      << ::testing::PrintToString(ids) << ", llama.cpp "
                      << ::testing::PrintToString(expected);
      }
    }
    EXPECT_EQ(wrong, 0) << name;
    EXPECT_GT(count, 0) << name;
    std::printf("%s: %d texts, %d differ\n", name.c_str(), count, wrong);
  }
  EXPECT_GT(vocabularies, 0) << folder;
}

}  // namespace
}  // namespace tilewright
