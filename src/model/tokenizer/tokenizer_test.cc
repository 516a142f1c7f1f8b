#include "tilewright/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/random.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/pre_split.h"
#include "model/tokenizer/special_tokens.h"
#include "model/tokenizer/utf8.h"
#include "model/tokenizer/vocabulary.h"
#include "tilewright/gguf.h"

namespace tilewright {
namespace {

using Ids = std::vector<TokenId>;

constexpr const char* kPres[] = {"gpt-2",        "llama-bpe",      "smollm",     "qwen2",
                                 "dbrx",         "tekken",         "gpt-4o",     "falcon",
                                 "deepseek-llm", "deepseek-coder", "deepseek-v3"};

/// A vocabulary of all 256 bytes (ids 0 to 255, by byte) and what a test adds. Owns the texts that
/// the spec views.
class SpecBuilder {
 public:
  SpecBuilder() {
    spec.pre = "gpt-2";
    for (const ByteSymbol& symbol : kByteSymbols)
      AddText(std::string(symbol.view()), TokenType::kNormal);
  }

  TokenId AddText(std::string text, TokenType type) {
    texts_.push_back(std::move(text));
    spec.tokens.push_back(texts_.back());
    spec.token_types.push_back(static_cast<std::int32_t>(type));
    return static_cast<TokenId>(spec.tokens.size()) - 1;
  }

  /// The token of `bytes`, without a merge that leads to it.
  TokenId AddWord(std::string_view bytes) {
    std::string text;
    AppendByteSymbols(bytes, text);
    return AddText(text, TokenType::kNormal);
  }

  void AddMergeText(std::string text) {
    texts_.push_back(std::move(text));
    spec.merges.push_back(texts_.back());
  }

  /// A merge of two words, and its result unless it is there already.
  TokenId AddMerge(std::string_view left, std::string_view right) {
    std::string first, second;
    AppendByteSymbols(left, first);
    AppendByteSymbols(right, second);
    AddMergeText(first + " " + second);
    const auto known = std::find(spec.tokens.begin(), spec.tokens.end(), first + second);
    if (known != spec.tokens.end()) return static_cast<TokenId>(known - spec.tokens.begin());
    return AddText(first + second, TokenType::kNormal);
  }

  Tokenizer Build() const {
    Result<Tokenizer> tokenizer = Tokenizer::Create(spec);
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return std::move(*tokenizer);
  }

  /// The error that Create must give.
  Error Refused() const {
    const Result<Tokenizer> tokenizer = Tokenizer::Create(spec);
    EXPECT_FALSE(tokenizer) << "was accepted";
    return tokenizer ? Error{} : tokenizer.error();
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

TEST(TokenizerTest, EarlierMergesGoFirstAndEqualOnesFromTheLeft) {
  SpecBuilder builder;
  const TokenId bc = builder.AddMerge("b", "c");
  const TokenId ab = builder.AddMerge("a", "b");
  const TokenId aa = builder.AddMerge("a", "a");
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "abc"), (Ids{'a', bc}));
  EXPECT_EQ(Encode(tokenizer, "ab"), (Ids{ab}));
  EXPECT_EQ(Encode(tokenizer, "aaa"), (Ids{aa, 'a'}));
}

TEST(TokenizerTest, AMergeThatComesTwiceKeepsItsFirstRank) {
  SpecBuilder builder;
  const TokenId bc = builder.AddMerge("b", "c");
  builder.AddMerge("a", "b");
  builder.AddMerge("b", "c");
  EXPECT_EQ(Encode(builder.Build(), "abc"), (Ids{'a', bc}));
}

/// The rule itself: again and again the pair with the lowest rank, of these the leftmost.
/// Quadratic.
Ids MergeByTheRule(const Vocabulary& vocabulary, std::string_view word) {
  Ids ids;
  for (const char byte : word)
    ids.push_back(vocabulary.byte_tokens()[static_cast<std::uint8_t>(byte)]);
  while (true) {
    Merge best;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const Merge merge = vocabulary.merges().Find(ids[i], ids[i + 1]);
      if (merge.exists() && merge.rank < best.rank) {
        best = merge;
        at = i;
      }
    }
    if (!best.exists()) break;
    ids[at] = best.result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::erase(ids, kNoToken);
  return ids;
}

TEST(TokenizerTest, BothWaysOfMergingFollowTheRuleForAnyMerges) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    SpecBuilder builder;
    // Merges in random order, so that some make pairs of a lower rank than their own, which no
    // training would.
    std::vector<std::string> words = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 40; ++i) {
      const std::string left = words[random.Below(words.size())];
      const std::string right = words[random.Below(words.size())];
      if (left.size() + right.size() > 12) continue;
      merges.emplace_back(left, right);
      words.push_back(left + right);
    }
    for (std::size_t i = merges.size(); i > 1; --i)
      std::swap(merges[i - 1], merges[random.Below(i)]);
    for (const std::string& word : words) {
      if (word.size() > 1 && std::find(builder.spec.tokens.begin(), builder.spec.tokens.end(),
                                       word) == builder.spec.tokens.end()) {
        builder.AddWord(word);
      }
    }
    for (const auto& [left, right] : merges) builder.AddMerge(left, right);
    const Result<Vocabulary> vocabulary = Vocabulary::Create(builder.spec);
    ASSERT_TRUE(vocabulary) << vocabulary.error().message;
    WordEncoder encoder(*vocabulary);
    for (int i = 0; i < 60; ++i) {
      std::string word;
      const std::uint64_t size = random.Below(2 * WordEncoder::kShortWord + 20);
      while (word.size() < size) word.push_back("abcabcabcx"[random.Below(10)]);
      Ids ids;
      encoder.Encode(word, ids);
      ASSERT_EQ(ids, MergeByTheRule(*vocabulary, word)) << "seed " << seed << ", word " << word;
    }
  }
}

TEST(TokenizerTest, BytesWithoutATokenAreLeftOut) {
  SpecBuilder builder;
  builder.spec.tokens.erase(builder.spec.tokens.begin() + 'b');
  builder.spec.token_types.erase(builder.spec.token_types.begin());
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "abc"), (Ids{'a', 'b'}))
      << "the token after the missing one moved down";
  EXPECT_EQ(Encode(tokenizer, std::string(WordEncoder::kShortWord + 5, 'b')), Ids{});
}

TEST(TokenizerTest, LongerSpecialTokensWinOverEarlierOnes) {
  SpecBuilder builder;
  const TokenId ab = builder.AddText("<ab", TokenType::kControl);
  const TokenId bcde = builder.AddText("b>cde", TokenType::kControl);
  const TokenId cdef = builder.AddText("cdef!", TokenType::kUserDefined);
  const TokenId prefix = builder.AddText("<a", TokenType::kControl);
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "<ab"), (Ids{ab}));
  EXPECT_EQ(Encode(tokenizer, "<ab>cde"), (Ids{prefix, bcde}))
      << "what is left of the shorter one is searched again";
  EXPECT_EQ(Encode(tokenizer, "b>cdef!"), (Ids{bcde, 'f', '!'}))
      << "of one length the lower id goes first";
  EXPECT_EQ(Encode(tokenizer, "cdef!"), (Ids{cdef}));
  EXPECT_EQ(Encode(tokenizer, "<a<ab<a"), (Ids{prefix, ab, prefix}));
}

TEST(TokenizerTest, SpecialTokensAreFoundAsASearchOneByOneWould) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    SpecBuilder builder;
    std::vector<std::string> tokens;
    while (tokens.size() < 6) {
      std::string token;
      const std::uint64_t size = 2 + random.Below(4);
      while (token.size() < size) token.push_back("xyz"[random.Below(3)]);
      if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
    }
    std::vector<std::pair<std::string, TokenId>> order;
    order.reserve(tokens.size());
    for (const std::string& token : tokens)
      order.emplace_back(token, builder.AddText(token, TokenType::kControl));
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
    std::string text;
    for (int i = 0; i < 60; ++i) text.push_back("xyz."[random.Below(4)]);

    std::vector<TokenId> owner(text.size(), kNoToken);
    std::vector<std::pair<std::size_t, TokenId>> expected;
    for (const auto& [token, id] : order) {
      for (std::size_t at = 0; at + token.size() <= text.size(); ++at) {
        const auto begin = owner.begin() + static_cast<std::ptrdiff_t>(at);
        const auto end = begin + static_cast<std::ptrdiff_t>(token.size());
        if (text.compare(at, token.size(), token) != 0) continue;
        if (std::any_of(begin, end, [](TokenId taken) { return taken != kNoToken; })) continue;
        std::fill(begin, end, id);
        expected.emplace_back(at, id);
      }
    }
    std::sort(expected.begin(), expected.end());
    const Result<Vocabulary> vocabulary = Vocabulary::Create(builder.spec);
    ASSERT_TRUE(vocabulary);
    SpecialTokenFinder finder;
    finder.Build(*vocabulary, false);
    std::vector<std::pair<std::size_t, TokenId>> found;
    for (const auto& match : finder.FindAll(text)) found.emplace_back(match.begin, match.id);
    ASSERT_EQ(found, expected) << "seed " << seed << ", text " << text;
  }
}

TEST(TokenizerTest, SpecialTokensAreTextUnlessParsedAndUserDefinedOnesNever) {
  SpecBuilder builder;
  const TokenId control = builder.AddText("<c>", TokenType::kControl);
  const TokenId unknown = builder.AddText("<u>", TokenType::kUnknown);
  const TokenId user = builder.AddText("<d>", TokenType::kUserDefined);
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "<c><u><d>"), (Ids{control, unknown, user}));
  EXPECT_EQ(Encode(tokenizer, "<c><u><d>", {.parse_special = false}),
            (Ids{'<', 'c', '>', '<', 'u', '>', user}));
}

TEST(TokenizerTest, BosAndEosStandWhereTheVocabularyWantsThem) {
  SpecBuilder builder;
  builder.spec.bos = builder.AddText("<s>", TokenType::kControl);
  builder.spec.eos = builder.AddText("<e>", TokenType::kControl);
  EXPECT_EQ(Encode(builder.Build(), "a"), (Ids{'a'})) << "gpt-2 adds nothing by itself";
  builder.spec.pre = "llama-bpe";
  EXPECT_EQ(Encode(builder.Build(), "a"), (Ids{builder.spec.bos, 'a'}))
      << "Llama-3 adds BOS by itself";
  builder.spec.add_bos = false;
  builder.spec.add_eos = true;
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "a"), (Ids{'a', builder.spec.eos}));
  EXPECT_EQ(Encode(tokenizer, ""), (Ids{builder.spec.eos}));
  EXPECT_EQ(Encode(tokenizer, "a", {.add_special = false}), (Ids{'a'}));
}

TEST(TokenizerTest, EndsOfGenerationAreKnownByIdAndByName) {
  SpecBuilder builder;
  const TokenId eos = builder.AddText("<stop>", TokenType::kControl);
  const TokenId named = builder.AddText("<|im_end|>", TokenType::kNormal);
  const TokenId other = builder.AddText("<|im_start|>", TokenType::kControl);
  builder.spec.eos = eos;
  const Tokenizer tokenizer = builder.Build();
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(eos));
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(named));
  EXPECT_EQ(tokenizer.type(named), TokenType::kControl) << "mistyped in the file";
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(other));
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(kNoToken));
  EXPECT_EQ(Encode(tokenizer, "<|im_end|>"), (Ids{named}));
}

TEST(TokenizerTest, InGptOssAMessageEndsWithoutEndingTheTurn) {
  SpecBuilder builder;
  const TokenId end = builder.AddText("<|end|>", TokenType::kControl);
  const TokenId channel = builder.AddText("<|channel|>", TokenType::kControl);
  EXPECT_TRUE(builder.Build().IsEndOfGeneration(end));
  EXPECT_EQ(builder.Build().type(channel), TokenType::kUserDefined);
  const TokenId call = builder.AddText("<|call|>", TokenType::kControl);
  const TokenId done = builder.AddText("<|return|>", TokenType::kControl);
  const Tokenizer tokenizer = builder.Build();
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(end));
  EXPECT_EQ(tokenizer.type(end), TokenType::kUserDefined);
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(call));
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(done));
}

TEST(TokenizerTest, PiecesAreShownHiddenOrSpelledByType) {
  SpecBuilder builder;
  const TokenId word = builder.AddWord(" h\xc3\xa9");
  const TokenId control = builder.AddText("<c>", TokenType::kControl);
  const TokenId user =
      builder.AddText("\xc4\xa0<d>", TokenType::kUserDefined);  // not spelled in the byte alphabet
  const TokenId byte = builder.AddText("<0xFe>", TokenType::kByte);
  const TokenId broken = builder.AddText("<0xG>", TokenType::kByte);
  const TokenId unused = builder.AddText("unused", TokenType::kUnused);
  const TokenId foreign =
      builder.AddText("\xe2\x82\xac", TokenType::kNormal);  // a character outside the byte alphabet
  const Tokenizer tokenizer = builder.Build();
  const Ids ids = {word, control, user, byte, broken, unused, foreign, 0xe9};
  EXPECT_EQ(tokenizer.Decode(ids).value(), " h\xc3\xa9\xc4\xa0<d>\xfe\xe2\x82\xac\xe9");
  EXPECT_EQ(tokenizer.Decode(ids, true).value(), " h\xc3\xa9<c>\xc4\xa0<d>\xfe\xe2\x82\xac\xe9");
}

TEST(TokenizerTest, AnIdOutOfRangeIsAnErrorWithTheLimit) {
  const Tokenizer tokenizer = SpecBuilder().Build();
  for (const TokenId id : {-1, 256, 1 << 30}) {
    const Result<std::string> text = tokenizer.Decode(std::vector<TokenId>{id});
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(text.error().message.find(std::to_string(id)), std::string::npos)
        << text.error().message;
    EXPECT_NE(text.error().message.find("256"), std::string::npos) << text.error().message;
    EXPECT_EQ(tokenizer.type(id), TokenType::kUndefined);
    EXPECT_EQ(tokenizer.text(id), "");
  }
}

TEST(TokenizerTest, AllBytesSurviveEncodingWhereTheyAreText) {
  std::string text;
  for (int code = 1; code < 0x3000; ++code) {
    if (code < 0x80) {
      text.push_back(static_cast<char>(code));
    } else if (code < 0x800) {
      text += {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
    } else {
      text +=
          {static_cast<char>(0xe0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3f)),
           static_cast<char>(0x80 | (code & 0x3f))};
    }
  }
  for (const char* pre : kPres) {
    SpecBuilder builder;
    builder.spec.pre = pre;
    builder.spec.add_bos = false;
    const Tokenizer each = builder.Build();
    EXPECT_EQ(each.Decode(Encode(each, text)).value(), text) << pre;
  }
}

TEST(TokenizerTest, FourThreadsMayUseOneTokenizer) {
  SpecBuilder builder;
  builder.AddMerge("a", "b");
  builder.AddText("<c>", TokenType::kControl);
  const Tokenizer tokenizer = builder.Build();
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "ab <c> ba\xff 12";
  const Ids expected = Encode(tokenizer, text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  threads.reserve(results.size());
  for (Ids& result : results) {
    threads.emplace_back([&tokenizer, &text, &result] { result = Encode(tokenizer, text); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

// --- Ill-formed text --------------------------------------------------------------------------

std::string Normalized(std::string_view text) {
  NormalizeBuffer buffer;
  const NormalText normal = Normalize(text, buffer);
  EXPECT_EQ(normal.bytes.size(), normal.match.size());
  return std::string(normal.bytes);
}

TEST(Utf8Test, EveryStrayByteBecomesAReplacementCharacter) {
  const std::string fffd(kReplacement);
  EXPECT_EQ(Normalized("a\x80z"), "a" + fffd + "z");
  EXPECT_EQ(Normalized("\xe2\x82"), fffd + fffd);
  EXPECT_EQ(Normalized("\xe2\x82z\xff"), fffd + fffd + "z" + fffd);
  EXPECT_EQ(Normalized("\xf4\x90\x80\x80"), fffd + fffd + fffd + fffd) << "above U+10FFFF";
  EXPECT_EQ(Normalized("\xc0\xaf|\xe0\x80\xaf"), "/|/") << "overlong forms are shortened";
  EXPECT_EQ(Normalized("\xed\xa0\x80"), "\xed\xa0\x80") << "surrogates stay";
  NormalizeBuffer buffer;
  EXPECT_EQ(Normalize("\xed\xa0\x80", buffer).match, "\xee\x80\x80")
      << "but PCRE2 does not see them";
}

TEST(Utf8Test, WellFormedTextIsNotCopied) {
  const std::string text =
      "plain, \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80, and long enough for whole words of memory";
  NormalizeBuffer buffer;
  EXPECT_EQ(Normalize(text, buffer).bytes.data(), text.data());
}

TEST(StreamDecoderTest, HoldsBackHalfACharacterAndReplacesWhatCannotBeOne) {
  const Tokenizer tokenizer = SpecBuilder().Build();
  StreamDecoder decoder(tokenizer);
  const auto push = [&](int byte) { return decoder.Push(byte).value(); };
  EXPECT_EQ(push(0xf0), "");
  EXPECT_EQ(push(0x9f), "");
  EXPECT_EQ(push(0x98), "");
  EXPECT_EQ(push(0x80), "\xf0\x9f\x98\x80");
  EXPECT_EQ(push('a'), "a");
  EXPECT_EQ(push(0xe2), "");
  EXPECT_EQ(push('b'),
            "\xef\xbf\xbd"
            "b")
      << "the character will not be finished";
  EXPECT_EQ(push(0x80), "\xef\xbf\xbd");
  EXPECT_EQ(push(0xc0), "\xef\xbf\xbd") << "begins no character";
  EXPECT_EQ(push(0xed), "");
  EXPECT_EQ(push(0xa0), "\xef\xbf\xbd\xef\xbf\xbd") << "a surrogate";
  EXPECT_EQ(push(0xc3), "");
  EXPECT_EQ(decoder.Flush(), "\xef\xbf\xbd");
  EXPECT_EQ(decoder.Flush(), "");
  EXPECT_EQ(push(0xa9), "\xef\xbf\xbd") << "the flush forgot the beginning";
}

TEST(StreamDecoderTest, ShowsControlTokensOnlyIfAsked) {
  SpecBuilder builder;
  const TokenId control = builder.AddText("<c>", TokenType::kControl);
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(StreamDecoder(tokenizer).Push(control).value(), "");
  EXPECT_EQ(StreamDecoder(tokenizer, true).Push(control).value(), "<c>");
  EXPECT_FALSE(StreamDecoder(tokenizer).Push(9999));
}

// --- Splitting --------------------------------------------------------------------------------

std::vector<std::string> Split(const PreSplitter& splitter, std::string_view text) {
  std::vector<std::string> words;
  PreSplitter::Cursor cursor(splitter, text);
  std::size_t end = 0;
  while (true) {
    const Result<bool> more = cursor.Next();
    EXPECT_TRUE(more) << more.error().message;
    if (!more || !*more) break;
    EXPECT_EQ(cursor.begin(), end) << "a gap";
    EXPECT_GT(cursor.end(), cursor.begin());
    end = cursor.end();
    words.emplace_back(text.substr(cursor.begin(), cursor.end() - cursor.begin()));
  }
  EXPECT_EQ(end, text.size());
  return words;
}

using Words = std::vector<std::string>;

TEST(PreSplitTest, WordsNumbersAndSpacesAreCutAsEachFamilyDoes) {
  const PreSplitter gpt2 = PreSplitter::Create("gpt-2").value();
  const PreSplitter llama = PreSplitter::Create("llama-bpe").value();
  const PreSplitter smollm = PreSplitter::Create("smollm").value();
  EXPECT_EQ(Split(gpt2, "it's 12345  ok!\n\n"),
            (Words{"it", "'s", " 12345", " ", " ok", "!", "\n\n"}));
  EXPECT_EQ(Split(llama, "it'S 12345  ok!\n\n"),
            (Words{"it", "'S", " ", "123", "45", " ", " ok", "!\n\n"}));
  EXPECT_EQ(Split(smollm, "it's  12  ok"), (Words{"it", "'s", "  ", "1", "2", " ", " ok"}));
  EXPECT_EQ(Split(llama, "a \n \n  b"), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(Split(llama, "(x"), (Words{"(x"})) << "one mark may lead a word";
  EXPECT_EQ(Split(gpt2, "(x"), (Words{"(", "x"}));
}

TEST(PreSplitTest, ClassesDoNotDependOnTheVersionOfPcre2) {
  const PreSplitter gpt2 = PreSplitter::Create("gpt-2").value();
  // U+2EBF0 is a letter since Unicode 15.1; U+1E4F0 a number since 15.0; U+180E is no white space
  // since 6.3, but PCRE2 says so.
  EXPECT_EQ(Split(gpt2, "a\xf0\xae\xaf\xb0"), (Words{"a\xf0\xae\xaf\xb0"}));
  EXPECT_EQ(Split(gpt2, "1\xf0\x9e\x93\xb0"), (Words{"1\xf0\x9e\x93\xb0"}));
  EXPECT_EQ(Split(gpt2, "!\xe1\xa0\x8e"), (Words{"!\xe1\xa0\x8e"}));
  EXPECT_EQ(Split(gpt2, "\xc2\x85\xe3\x80\x80"), (Words{"\xc2\x85\xe3\x80\x80"}));
}

TEST(PreSplitTest, InterpreterAndCompilerCutAlike) {
  const std::vector<std::string> parts = {"a",
                                          "Z",
                                          "'s",
                                          "'LL",
                                          "'",
                                          " ",
                                          "\n",
                                          "\r",
                                          "\t",
                                          "1",
                                          "\xc2\xb2",
                                          "!",
                                          "\xc3\xa9",
                                          "\xcc\x81",
                                          "\xe4\xbd\xa0",
                                          "\xf0\x9f\x98\x80",
                                          "\xe3\x80\x80",
                                          std::string(1, '\0')};
  for (const char* pre : kPres) {
    const PreSplitter fast = PreSplitter::Create(pre, {.jit = true}).value();
    const PreSplitter slow = PreSplitter::Create(pre, {.jit = false}).value();
    Random random(7);
    for (int i = 0; i < 500; ++i) {
      std::string text;
      for (std::uint64_t k = random.Below(30); k > 0; --k)
        text += parts[random.Below(parts.size())];
      ASSERT_EQ(Split(fast, text), Split(slow, text)) << pre << ", text " << i;
    }
  }
}

TEST(PreSplitTest, TenMillionSpacesAreTwoWords) {
  std::string text;
  text.resize(10'000'000, ' ');
  text += "x";
  for (const char* pre : {"gpt-2", "llama-bpe", "smollm"}) {
    for (const bool jit : {true, false}) {
      const PreSplitter splitter = PreSplitter::Create(pre, {.jit = jit}).value();
      const Words words = Split(splitter, text);
      ASSERT_EQ(words.size(), 2u) << pre << (jit ? "" : " without JIT");
      EXPECT_EQ(words[1], " x");
    }
  }
}

TEST(PreSplitTest, LongRunsOfOneKindNeverExhaustPcre2) {
  for (const char* pre : kPres) {
    for (const bool jit : {true, false}) {
      const PreSplitter splitter = PreSplitter::Create(pre, {.jit = jit}).value();
      for (const char* unit : {"A", "a", "\xc3\x89", "A\xc3\x89", "!", "1", "\n", " \n", "\xcc\x81",
                               "\xe4\xb8\x80", " ", " 1", "  \x01"}) {
        std::string text;
        while (text.size() < 50'000) text += unit;
        text += "?";
        EXPECT_FALSE(Split(splitter, text).empty()) << pre << ", " << unit;
      }
    }
  }
}

TEST(PreSplitTest, ARunOfSpacesThatEndsNothingTakesTimeInProportion) {
  const auto seconds = [](const PreSplitter& splitter, std::size_t size) {
    const std::string text = std::string(size, ' ') + "1";
    // Of the processor, which other processes do not add to.
    const std::clock_t start = std::clock();
    for (int i = 0; i < 4; ++i) EXPECT_LE(Split(splitter, text).size(), 3u);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  for (const char* pre : kPres) {
    for (const bool jit : {true, false}) {  // PCRE2's compiler finds a way out, its interpreter not
      const PreSplitter splitter = PreSplitter::Create(pre, {.jit = jit}).value();
      const double small = seconds(splitter, 3'000);
      const double large = seconds(splitter, 16 * 3'000);
      EXPECT_LT(large, 100 * small) << pre << (jit ? "" : " without JIT");  // n^2 is 256
    }
  }
}

TEST(PreSplitTest, UpperAndLowerCaseMakeWords) {
  const PreSplitter tekken = PreSplitter::Create("tekken").value();
  const PreSplitter gpt4o = PreSplitter::Create("gpt-4o").value();
  const std::string e = "\xc3\x89";  // É, which counts as both cases
  EXPECT_EQ(Split(gpt4o, "HTTPServer fooBar XYZ"), (Words{"HTTPServer", " foo", "Bar", " XYZ"}));
  EXPECT_EQ(Split(gpt4o, "AB" + e + "CD"), (Words{"AB" + e, "CD"}));
  EXPECT_EQ(Split(gpt4o, "ab" + e + "CDe"), (Words{"ab" + e, "CDe"}));
  EXPECT_EQ(Split(gpt4o, "it's I'LL 'tis 12345/\n/x"),
            (Words{"it's", " I'LL", " '", "tis", " ", "123", "45", "/\n/", "x"}));
  EXPECT_EQ(Split(tekken, "it's 12/\n/x"), (Words{"it", "'s", " ", "1", "2", "/\n/", "x"}));
}

TEST(PreSplitTest, ASequenceOfSplitsCutsThePiecesOfTheOneBefore) {
  const PreSplitter falcon = PreSplitter::Create("falcon").value();
  EXPECT_EQ(Split(falcon, "a $+b 1234567"), (Words{"a", " ", "$+", "b", " ", "123", "456", "7"}));
  const PreSplitter llm = PreSplitter::Create("deepseek-llm").value();
  EXPECT_EQ(Split(llm, "ab\n\n c1, 23  "),
            (Words{"ab", "\n", "\n", " c", "1", ",", " ", "23", "  "}));
  EXPECT_EQ(Split(llm, "  1  \xe4\xb8\x80"), (Words{"  ", "1", "  ", "\xe4\xb8\x80"}));
  const PreSplitter coder = PreSplitter::Create("deepseek-coder").value();
  EXPECT_EQ(Split(coder, "\xd0\x96 ,12\n"), (Words{"\xd0\x96", " ,", "1", "2", "\n"}));
  const PreSplitter v3 = PreSplitter::Create("deepseek-v3").value();
  EXPECT_EQ(Split(v3, "12345 (abc  \xe4\xb8\x80.\n"),
            (Words{"123", "45", " (", "abc", "  ", "\xe4\xb8\x80", ".\n"}));
}

TEST(PreSplitTest, UnknownPreTokenizerIsNamedBesideTheKnownOnes) {
  SpecBuilder builder;
  builder.spec.pre = "sundial";
  const Error error = builder.Refused();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  for (const char* part :
       {"tokenizer.ggml.pre", "'sundial'", "gpt-2", "llama-bpe", "smollm", "qwen2",
        "deepseek-r1-qwen", "deepseek-coder", "gpt-4o", "tekken", "falcon", "starcoder"}) {
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
  }
}

// --- Cost -------------------------------------------------------------------------------------

TEST(TokenizerCostTest, TenMillionSpacesTakeTimeInProportion) {
  SpecBuilder builder;
  for (std::size_t size = 1; size <= 32; size *= 2)
    builder.AddMerge(std::string(size, ' '), std::string(size, ' '));
  const Tokenizer tokenizer = builder.Build();
  const auto seconds = [&](std::size_t size) {
    const std::string text(size, ' ');
    // Of the processor, which other processes do not add to.
    const std::clock_t start = std::clock();
    const Ids ids = Encode(tokenizer, text);
    EXPECT_EQ(ids.size(), size / 64);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  const double small = seconds(640'000);
  const double large = seconds(16 * 640'000);
  // 16 times the text. n log n predicts 19 times the time, a cache that no longer holds it all
  // somewhat more; n^2 is 256.
  EXPECT_LT(large, 100 * small) << small << " s and " << large << " s";
}

TEST(TokenizerCostTest, OverlappingSpecialTokensTakeTimeInProportion) {
  SpecBuilder builder;
  const TokenId two = builder.AddText("--", TokenType::kUserDefined);
  builder.AddText("-=", TokenType::kUserDefined);
  const Tokenizer tokenizer = builder.Build();
  const Ids ids = Encode(tokenizer, std::string(2'000'000, '-'));
  ASSERT_EQ(ids.size(), 1'000'000u);
  EXPECT_TRUE(std::all_of(ids.begin(), ids.end(), [two](TokenId id) { return id == two; }));
}

// --- Bad vocabularies -------------------------------------------------------------------------

void ExpectMessage(const Error& error, ErrorCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(error.code, code) << error.message;
  for (const std::string& part : parts)
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
}

TEST(TokenizerSpecTest, WrongLengthsIdsAndMergesAreErrorsThatNameTheKey) {
  {
    SpecBuilder builder;
    builder.spec.token_types.pop_back();
    ExpectMessage(builder.Refused(), ErrorCode::kCorrupt,
                  {"tokenizer.ggml.token_type", "255", "256"});
  }
  {
    SpecBuilder builder;
    builder.spec.bos = 256;
    ExpectMessage(builder.Refused(), ErrorCode::kCorrupt, {"tokenizer.ggml.bos_token_id", "256"});
  }
  {
    SpecBuilder builder;
    builder.spec.add_eos = true;
    ExpectMessage(builder.Refused(), ErrorCode::kCorrupt,
                  {"tokenizer.ggml.eos_token_id", "missing"});
  }
  {
    SpecBuilder builder;
    builder.AddText("a", TokenType::kNormal);
    ExpectMessage(builder.Refused(), ErrorCode::kCorrupt,
                  {"tokenizer.ggml.tokens", "97", "256", "'a'"});
  }
  {
    SpecBuilder builder;
    builder.AddMerge("a", "b");
    builder.AddMergeText("ab");
    ExpectMessage(builder.Refused(), ErrorCode::kCorrupt, {"tokenizer.ggml.merges[1]", "'ab'"});
  }
  {
    SpecBuilder builder;
    builder.AddMergeText("a bc");
    ExpectMessage(builder.Refused(), ErrorCode::kCorrupt,
                  {"tokenizer.ggml.merges[0]", "no token 'bc'"});
  }
  {
    SpecBuilder builder;
    builder.AddMergeText("a b");
    ExpectMessage(builder.Refused(), ErrorCode::kCorrupt,
                  {"tokenizer.ggml.merges[0]", "no token 'ab'"});
  }
  {
    SpecBuilder builder;
    builder.spec.model = "rwkv";
    ExpectMessage(builder.Refused(), ErrorCode::kUnsupported,
                  {"tokenizer.ggml.model", "'rwkv'", "'gpt2'", "'llama'"});
  }
  for (const std::int32_t type : {-1, 7}) {
    SpecBuilder builder;
    builder.spec.token_types[17] = type;
    ExpectMessage(builder.Refused(), ErrorCode::kCorrupt,
                  {"tokenizer.ggml.token_type[17]", std::to_string(type), "from 0 to 6"});
  }
  ExpectMessage(
      [] {
        SpecBuilder builder;
        builder.spec.tokens.clear();
        return builder.Refused();
      }(),
      ErrorCode::kCorrupt, {"tokenizer.ggml.tokens"});
}

TEST(TokenizerSpecTest, OddMergeTextsAreErrorsAndNeverReadOutOfBounds) {
  for (const char* merge : {"", " ", "a", "a ", " a", "  ", "a  b"}) {
    SpecBuilder builder;
    builder.AddMergeText(merge);
    EXPECT_EQ(builder.Refused().code, ErrorCode::kCorrupt) << "'" << merge << "'";
  }
}

TEST(TokenizerSpecTest, EmptyTokensArePaddingAndAreFoundInNoText) {
  SpecBuilder builder;
  builder.AddText("", TokenType::kControl);
  builder.AddText("", TokenType::kUserDefined);
  const Tokenizer tokenizer = builder.Build();
  EXPECT_EQ(Encode(tokenizer, "a"), (Ids{'a'}));
  EXPECT_EQ(tokenizer.text(256), "[EMPTY_256]");
}

TEST(TokenizerSpecTest, MissingAndMistypedKeysOfAFileAreNamed) {
  const auto parse = [](const GgufWriter& writer,
                        const std::string& path) -> Result<TokenizerSpec> {
    const Status written =
        writer.Write(path, [](std::size_t, const GgufWriter::Sink&) { return Status(); });
    EXPECT_TRUE(written) << written.error().message;
    Result<GgufFile> file = GgufFile::Open(path);
    if (!file) return Fail(file.error());
    Result<TokenizerSpec> spec = TokenizerSpecFromGguf(*file);
    if (!spec) return Fail(spec.error());
    return TokenizerSpec{};  // its views would not outlive the file
  };
  const std::string path = ::testing::TempDir() + "/tokenizer_spec_test.gguf";
  const std::vector<std::string> texts = {"a", "b"};
  {
    GgufWriter writer;
    writer.SetString("general.architecture", "llama");
    const Result<TokenizerSpec> spec = parse(writer, path);
    ASSERT_FALSE(spec);
    ExpectMessage(spec.error(), ErrorCode::kNotFound, {"tokenizer.ggml.model"});
  }
  const auto complete = [&](const char* left_out) {
    GgufWriter writer;
    const auto want = [&](const char* key) { return std::string_view(left_out) != key; };
    if (want("tokenizer.ggml.model")) writer.SetString("tokenizer.ggml.model", "gpt2");
    if (want("tokenizer.ggml.pre")) writer.SetString("tokenizer.ggml.pre", "gpt-2");
    if (want("tokenizer.ggml.tokens")) writer.SetStrings("tokenizer.ggml.tokens", texts);
    if (want("tokenizer.ggml.merges")) writer.SetStrings("tokenizer.ggml.merges", {});
    return writer;
  };
  EXPECT_TRUE(parse(complete(""), path));
  for (const char* key : {"tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    const Result<TokenizerSpec> spec = parse(complete(key), path);
    ASSERT_FALSE(spec) << key;
    ExpectMessage(spec.error(), ErrorCode::kNotFound, {key});
  }
  {
    GgufWriter writer = complete("");
    writer.SetString("tokenizer.ggml.eos_token_id", "two");
    const Result<TokenizerSpec> spec = parse(writer, path);
    ASSERT_FALSE(spec);
    ExpectMessage(spec.error(), ErrorCode::kCorrupt, {"tokenizer.ggml.eos_token_id"});
  }
  {
    GgufWriter writer = complete("");
    writer.SetI32("tokenizer.ggml.bos_token_id", -1);
    const Result<TokenizerSpec> spec = parse(writer, path);
    ASSERT_FALSE(spec);
    ExpectMessage(spec.error(), ErrorCode::kCorrupt, {"tokenizer.ggml.bos_token_id", "-1"});
  }
}

}  // namespace
}  // namespace tilewright
