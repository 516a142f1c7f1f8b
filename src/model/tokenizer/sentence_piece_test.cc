// SentencePiece vocabularies: merges by score, byte tokens, spaces, bad files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "model/tokenizer/scored_pieces.h"
#include "model/tokenizer/vocabulary.h"
#include "tilewright/gguf.h"
#include "tilewright/tokenizer.h"

namespace tilewright {
namespace {

using Ids = std::vector<TokenId>;

/// <unk>, <s>, </s>, the 256 byte tokens, and what a test adds. Owns the texts that the spec views.
class PieceBuilder {
 public:
  static constexpr TokenId kUnk = 0, kBos = 1, kEos = 2, kByte = 3;

  PieceBuilder() {
    spec.model = "llama";
    spec.bos = kBos;
    spec.eos = kEos;
    spec.unk = kUnk;
    spec.add_bos = false;
    spec.add_space_prefix = false;
    Add("<unk>", 0, TokenType::kUnknown);
    Add("<s>", 0, TokenType::kControl);
    Add("</s>", 0, TokenType::kControl);
    static constexpr char kHex[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; ++byte)
      Add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", 0, TokenType::kByte);
  }

  TokenId Add(std::string text, float score, TokenType type = TokenType::kNormal) {
    texts_.push_back(std::move(text));
    spec.tokens.push_back(texts_.back());
    spec.scores.push_back(score);
    spec.token_types.push_back(static_cast<std::int32_t>(type));
    return static_cast<TokenId>(spec.tokens.size()) - 1;
  }

  Tokenizer Build() const {
    Result<Tokenizer> tokenizer = Tokenizer::Create(spec);
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return std::move(*tokenizer);
  }

  void ExpectRefused(ErrorCode code, const std::vector<std::string>& parts) const {
    const Result<Tokenizer> tokenizer = Tokenizer::Create(spec);
    ASSERT_FALSE(tokenizer) << "was accepted";
    EXPECT_EQ(tokenizer.error().code, code);
    for (const std::string& part : parts) {
      EXPECT_NE(tokenizer.error().message.find(part), std::string::npos)
          << tokenizer.error().message;
    }
  }

  TokenizerSpec spec;

 private:
  std::deque<std::string> texts_;
};

Ids Encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  Result<Ids> ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids.value_or(Ids{});
}

TEST(SentencePieceTest, HigherScoresGoFirstAndEqualOnesFromTheLeft) {
  PieceBuilder builder;
  const TokenId a = builder.Add("a", -9), b = builder.Add("b", -9), c = builder.Add("c", -9);
  const TokenId ab = builder.Add("ab", -2), bc = builder.Add("bc", -1), aa = builder.Add("aa", -1);
  const TokenId abab = builder.Add("abab", -1);
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "abc"), (Ids{a, bc}));
  EXPECT_EQ(Encode(tokenizer, "ab"), (Ids{ab}));
  EXPECT_EQ(Encode(tokenizer, "aaa"), (Ids{aa, a}));
  EXPECT_EQ(Encode(tokenizer, "ababab"), (Ids{abab, ab}));
  EXPECT_EQ(Encode(tokenizer, "cba"), (Ids{c, b, a}));
}

TEST(SentencePieceTest, CharactersWithoutATokenBecomeTheirBytesUnlessTheyMerge) {
  PieceBuilder builder;
  const TokenId a = builder.Add("a", -1), joined = builder.Add("\xc3\xa9\xc3\xbc", -1);
  const Tokenizer tokenizer = builder.Build();
  const TokenId byte = PieceBuilder::kByte;
  EXPECT_EQ(Encode(tokenizer, "a\xc3\xa9"), (Ids{a, byte + 0xc3, byte + 0xa9}));
  EXPECT_EQ(Encode(tokenizer, "a\xc3\xa9\xc3\xbc"), (Ids{a, joined}))
      << "neither character is a token";
  EXPECT_EQ(Encode(tokenizer,
                   "\xff"
                   "a\xe2\x82"),
            (Ids{byte + 0xff, byte + 'a', byte + 0xe2, byte + 0x82}))
      << "0xff claims the next three bytes, as in llama.cpp";
}

TEST(SentencePieceTest, AByteTokenMaySpellTheByteItself) {
  PieceBuilder builder;
  builder.spec.tokens[PieceBuilder::kByte + 'A'] = "A";
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "A"), (Ids{PieceBuilder::kByte + 'A'}));
}

TEST(SentencePieceTest, ASpaceIsPutInFrontOfTextAndTakenAwayAgain) {
  PieceBuilder builder;
  builder.spec.add_space_prefix.reset();
  builder.spec.add_bos.reset();
  const TokenId a = builder.Add("a", -5), space = builder.Add("\xe2\x96\x81", -5);
  const TokenId word = builder.Add(
      "\xe2\x96\x81"
      "a",
      -1);
  const TokenId user = builder.Add("<u>", 0, TokenType::kUserDefined);
  const Tokenizer tokenizer = builder.Build();
  const TokenId bos = PieceBuilder::kBos;
  EXPECT_EQ(Encode(tokenizer, "a"), (Ids{bos, word})) << "both are the default of the family";
  EXPECT_EQ(Encode(tokenizer, " a"), (Ids{bos, space, word}));
  EXPECT_EQ(Encode(tokenizer, ""), (Ids{bos}));
  const Ids ids = Encode(tokenizer, "a<s>a<u> a aa");
  EXPECT_EQ(ids, (Ids{bos, word, bos, word, user, space, word, word, a}));
  EXPECT_EQ(tokenizer.Decode(ids, true).value(), "<s>a<s>a<u> a aa");
  EXPECT_EQ(tokenizer.Decode(ids).value(), "aa<u> a aa");
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.Push(word).value(), " a") << "a continuation keeps its space";
}

TEST(SentencePieceTest, WithoutASpacePrefixTextIsEncodedAsItIs) {
  PieceBuilder builder;
  const TokenId a = builder.Add("a", -5), word = builder.Add(
                                              "\xe2\x96\x81"
                                              "a",
                                              -1);
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "a a"), (Ids{a, word}));
  EXPECT_EQ(Encode(tokenizer, " a"), (Ids{word}));
  EXPECT_EQ(tokenizer.Decode(Ids{word}).value(), " a");
}

TEST(SentencePieceTest, Phi3DropsWhiteSpaceAfterMostSpecialTokens) {
  PieceBuilder builder;
  builder.spec.strip_after_special = true;
  builder.spec.add_space_prefix = true;
  const TokenId word = builder.Add(
                    "\xe2\x96\x81"
                    "a",
                    -1),
                space = builder.Add("\xe2\x96\x81", -2);
  const TokenId user = builder.Add("<|user|>", 0, TokenType::kUserDefined);
  const TokenId end = builder.Add("<|end|>", 0, TokenType::kControl);
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "<|user|>\n a<|end|>\r\n\t <|user|> \n"),
            (Ids{user, word, end, user}));
  EXPECT_EQ(Encode(tokenizer, "<s> a<|end|> a"), (Ids{PieceBuilder::kBos, space, word, end, word}));
  EXPECT_EQ(Encode(tokenizer, "<|end|> a", {.parse_special = false}).back(), word);
  builder.spec.strip_after_special = false;
  EXPECT_EQ(Encode(builder.Build(), "<|end|> a"), (Ids{end, space, word}));
}

TEST(SentencePieceTest, ExtraSpacesGoWhereTheVocabularySaysSo) {
  PieceBuilder builder;
  builder.spec.remove_extra_whitespaces = true;
  builder.spec.add_space_prefix = true;
  const TokenId word = builder.Add(
      "\xe2\x96\x81"
      "a",
      -1);
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "a"), (Ids{word}));
  EXPECT_EQ(Encode(tokenizer, "  a   a a "), (Ids{word, word, word}));
  EXPECT_EQ(Encode(tokenizer, " a  "), (Ids{word}));
  EXPECT_EQ(Encode(tokenizer, "   "), Ids{});
}

/// The rule itself: again and again the pair whose token has the highest score, of these the
/// leftmost. Quadratic.
Ids MergeByTheRule(const TokenizerSpec& spec, const std::string& text) {
  const auto find = [&spec](const std::string& wanted) {
    const auto at = std::find(spec.tokens.begin(), spec.tokens.end(), wanted);
    return at == spec.tokens.end() ? kNoToken : static_cast<TokenId>(at - spec.tokens.begin());
  };
  std::vector<std::string> symbols;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(symbols.back().size()))
    symbols.emplace_back(LeadingCharacter(rest));
  while (true) {
    std::size_t best = symbols.size();
    float highest = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const TokenId id = find(symbols[i] + symbols[i + 1]);
      if (id == kNoToken) continue;
      const float score = spec.scores[static_cast<std::size_t>(id)];
      if (best < symbols.size() && score <= highest) continue;
      best = i;
      highest = score;
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    const TokenId id = find(symbol);
    if (id != kNoToken) ids.push_back(id);
    for (std::size_t i = 0; id == kNoToken && i < symbol.size(); ++i)
      ids.push_back(PieceBuilder::kByte + static_cast<std::uint8_t>(symbol[i]));
  }
  return ids;
}

std::string RandomOf(Random& random, const std::vector<std::string>& parts, std::uint64_t size) {
  std::string text;
  for (; size > 0; --size) text += parts[random.Below(parts.size())];
  return text;
}

TEST(SentencePieceTest, MergingFollowsTheRuleForAnyVocabulary) {
  const std::vector<std::string> letters = {"a", "b", "\xc3\xa9", "\xe2\x96\x81",
                                            "\xf0\x9f\x98\x80"};
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    PieceBuilder builder;
    std::vector<std::string> parts = letters;
    for (int i = 0; i < 30; ++i) {
      const std::string piece = RandomOf(random, parts, 2);
      const auto& tokens = builder.spec.tokens;
      if (piece.size() > 30 || std::find(tokens.begin(), tokens.end(), piece) != tokens.end())
        continue;
      builder.Add(piece, static_cast<float>(random.Below(8)));
      if (random.Below(4) != 0) parts.push_back(piece);
    }
    for (const std::string& letter : letters) {
      if (random.Below(3) != 0) builder.Add(letter, -1);
    }
    const Tokenizer tokenizer = builder.Build();
    for (int i = 0; i < 40; ++i) {
      const std::string text = RandomOf(random, letters, 1 + random.Below(30));
      ASSERT_EQ(Encode(tokenizer, text), MergeByTheRule(builder.spec, text))
          << "seed " << seed << ", text " << text;
    }
  }
}

/// A random character of any length in UTF-8, but U+2581, which stands for a space.
std::string RandomCharacter(Random& random) {
  const std::uint32_t limits[] = {0x80, 0x80, 0x800, 0x10000, 0x110000};
  std::uint32_t code = static_cast<std::uint32_t>(random.Below(limits[random.Below(5)]));
  if (code == 0x2581 || (code >= 0xd800 && code < 0xe000)) code = ' ';
  std::string text;
  if (code < 0x80) return {static_cast<char>(code)};
  if (code >= 0x10000) text.push_back(static_cast<char>(0xf0 | (code >> 18)));
  if (code >= 0x10000) text.push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3f)));
  if (code >= 0x800 && code < 0x10000) text.push_back(static_cast<char>(0xe0 | (code >> 12)));
  if (code >= 0x800) text.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
  if (code < 0x800) text.push_back(static_cast<char>(0xc0 | (code >> 6)));
  text.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  return text;
}

TEST(SentencePieceTest, AnyWellFormedTextSurvivesEncodingAndDecoding) {
  for (const bool prefix : {false, true}) {
    PieceBuilder builder;
    builder.spec.add_space_prefix = prefix;
    builder.Add("\xe2\x96\x81", -8);
    builder.Add("\xe2\x96\x81\xe2\x96\x81", -3);
    builder.Add("e", -8);
    builder.Add(
        "\xe2\x96\x81"
        "e",
        -2);
    builder.Add("e\xe2\x96\x81", -4);
    builder.Add("\xc3\xa9", -5);
    builder.Add(" <u>", 0, TokenType::kUserDefined);
    const Tokenizer tokenizer = builder.Build();
    Random random(11);
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (std::uint64_t k = random.Below(20); k > 0; --k) {
        const std::string parts[] = {" ", "e", "<s>", " <u>", "\xc3\xa9", RandomCharacter(random)};
        text += parts[random.Below(6)];
      }
      for (const bool parse : {false, true}) {
        const Ids ids = Encode(tokenizer, text, {.parse_special = parse});
        ASSERT_EQ(tokenizer.Decode(ids, true).value(), text) << "text " << i;
      }
    }
  }
}

TEST(SentencePieceCostTest, TextThatMergesThroughoutTakesTimeInProportion) {
  PieceBuilder builder;
  std::string run = "a";
  builder.Add(run, -20);
  for (int i = 0; i < 6; ++i) {
    run += run;
    builder.Add(run, static_cast<float>(-i));
  }
  const Tokenizer tokenizer = builder.Build();
  const auto seconds = [&](std::size_t size) {
    const std::string text(size, 'a');
    // Of the processor, which other processes do not add to.
    const std::clock_t start = std::clock();
    EXPECT_EQ(Encode(tokenizer, text).size(), size / 64);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  const double small = seconds(64'000);
  const double large = seconds(16 * 64'000);
  // 16 times the text: n log n predicts 20 times the time, n^2 256 times.
  EXPECT_LT(large, 100 * small) << small << " s and " << large << " s";
}

TEST(SentencePieceSpecTest, ScoresAndByteTokensThatDoNotFitAreErrorsThatNameTheKey) {
  {
    PieceBuilder builder;
    builder.spec.scores.pop_back();
    builder.ExpectRefused(ErrorCode::kCorrupt, {"tokenizer.ggml.scores", "258", "259"});
  }
  {
    PieceBuilder builder;
    builder.spec.scores.push_back(0);
    builder.ExpectRefused(ErrorCode::kCorrupt, {"tokenizer.ggml.scores", "260", "259"});
  }
  {
    PieceBuilder builder;
    builder.spec.scores.clear();
    builder.ExpectRefused(ErrorCode::kCorrupt, {"tokenizer.ggml.scores", "0 entries"});
  }
  {
    PieceBuilder builder;
    builder.spec.scores[7] = std::numeric_limits<float>::quiet_NaN();
    builder.ExpectRefused(ErrorCode::kCorrupt, {"tokenizer.ggml.scores[7]", "nan"});
  }
  {
    PieceBuilder builder;
    builder.spec.tokens[PieceBuilder::kByte + 0xfe] = "<0xfe>";  // SentencePiece writes capitals
    builder.ExpectRefused(ErrorCode::kCorrupt, {"tokenizer.ggml.tokens", "'<0xFE>'", "254"});
  }
  {
    PieceBuilder builder;
    builder.spec.scores[7] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(Encode(builder.Build(), "a"), (Ids{PieceBuilder::kByte + 'a'})) << "orders like any";
  }
}

/// Writes the vocabulary to a file, with an embedding of `rows` rows unless it is 0, and reads it.
Result<Tokenizer> ThroughFile(const PieceBuilder& builder, bool scores, std::int64_t rows) {
  GgufWriter writer;
  writer.SetString("tokenizer.ggml.model", "llama");
  const std::vector<std::string> tokens(builder.spec.tokens.begin(), builder.spec.tokens.end());
  writer.SetStrings("tokenizer.ggml.tokens", tokens);
  writer.SetI32s("tokenizer.ggml.token_type", builder.spec.token_types);
  if (scores) writer.SetF32s("tokenizer.ggml.scores", builder.spec.scores);
  if (rows > 0) {
    const GgufTensorSpec table{
        .name = "token_embd.weight", .dtype = DataType::kF32, .shape = {1, rows, 1, 1}, .dims = 2};
    EXPECT_TRUE(writer.AddTensor(table));
  }
  const std::string path = ::testing::TempDir() + "/sentence_piece_test.gguf";
  const std::vector<std::byte> zeros(static_cast<std::size_t>(rows) * 4);
  const Status written =
      writer.Write(path, [&](std::size_t, const GgufWriter::Sink& sink) { return sink(zeros); });
  EXPECT_TRUE(written) << written.error().message;
  Result<GgufFile> file = GgufFile::Open(path);
  if (!file) return Fail(file.error());
  return Tokenizer::FromGguf(*file);
}

TEST(SentencePieceSpecTest, WhatAFileLeavesOutHasTheUsualValue) {
  PieceBuilder builder;
  const TokenId word = builder.Add(
      "\xe2\x96\x81"
      "a",
      -1);
  const Result<Tokenizer> tokenizer = ThroughFile(builder, true, 0);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokenizer->unk(), 0);
  EXPECT_EQ(Encode(*tokenizer, "a"), (Ids{1, word}));
}

TEST(SentencePieceSpecTest, AFileWithoutScoresIsRefusedByKey) {
  const Result<Tokenizer> tokenizer = ThroughFile(PieceBuilder(), false, 0);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
  EXPECT_NE(tokenizer.error().message.find("tokenizer.ggml.scores"), std::string::npos)
      << tokenizer.error().message;
}

TEST(SentencePieceSpecTest, AVocabularyOfAnotherSizeThanTheEmbeddingIsRefused) {
  EXPECT_TRUE(ThroughFile(PieceBuilder(), true, 259));
  for (const std::int64_t rows : {258, 260}) {
    const Result<Tokenizer> tokenizer = ThroughFile(PieceBuilder(), true, rows);
    ASSERT_FALSE(tokenizer) << rows;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kCorrupt);
    for (const std::string& part :
         std::vector<std::string>{"259 tokens", "token_embd.weight", std::to_string(rows)}) {
      EXPECT_NE(tokenizer.error().message.find(part), std::string::npos)
          << tokenizer.error().message;
    }
  }
}

}  // namespace
}  // namespace tilewright
