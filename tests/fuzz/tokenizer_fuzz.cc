// Any text under a fixed vocabulary of each family, and any vocabulary. The first byte says which.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/utf8.h"
#include "tilewright/tokenizer.h"

namespace tilewright {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();  // what libFuzzer reports
}

constexpr const char* kPres[] = {"gpt-2",        "llama-bpe",      "smollm",     "qwen2",
                                 "dbrx",         "tekken",         "gpt-4o",     "falcon",
                                 "deepseek-llm", "deepseek-coder", "deepseek-v3"};

/// "<0x00>" to "<0xFF>".
const std::vector<std::string>& ByteNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    constexpr std::string_view kHex = "0123456789ABCDEF";
    for (std::size_t byte = 0; byte < 256; ++byte)
      all.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    return all;
  }();
  return names;
}

Tokenizer MakeTokenizer(const char* pre) {
  static std::deque<std::string> texts;
  TokenizerSpec spec;
  spec.pre = pre;
  spec.add_bos = false;
  const auto add = [&](std::string text, TokenType type) {
    texts.push_back(std::move(text));
    spec.tokens.push_back(texts.back());
    spec.token_types.push_back(static_cast<std::int32_t>(type));
  };
  for (const ByteSymbol& symbol : kByteSymbols) add(std::string(symbol.view()), TokenType::kNormal);
  for (const auto& [left, right] :
       {std::pair("a", "a"), {"aa", "aa"}, {"Ġ", "Ġ"}, {"ĠĠ", "ĠĠ"}, {"1", "2"}}) {
    add(std::string(left) + right, TokenType::kNormal);
    texts.push_back(std::string(left) + " " + right);
    spec.merges.push_back(texts.back());
  }
  for (const char* text : {"<|a|>", "<|a|>>", ">>"}) add(text, TokenType::kControl);
  add("  ", TokenType::kUserDefined);
  return std::move(*Tokenizer::Create(spec));
}

/// SentencePiece with a space in front. Every byte and U+2581 has a token, and no merges lead to a
/// special one.
Tokenizer MakePieces() {
  static std::deque<std::string> texts;
  TokenizerSpec spec;
  spec.model = "llama";
  spec.add_bos = false;
  const auto add = [&](std::string text, TokenType type) {
    texts.push_back(std::move(text));
    spec.tokens.push_back(texts.back());
    spec.token_types.push_back(static_cast<std::int32_t>(type));
    spec.scores.push_back(-static_cast<float>(spec.scores.size() % 7));
  };
  for (const std::string& name : ByteNames()) add(name, TokenType::kByte);
  for (const char* text : {"▁", "▁▁", "▁a", "a", "aa", "aaaa", "a▁", "é", "12", "\n", "<|"})
    add(text, TokenType::kNormal);
  for (const char* text : {"<|a|>", "<|a|>>", ">=>"}) add(text, TokenType::kControl);
  add("  ", TokenType::kUserDefined);
  return std::move(*Tokenizer::Create(spec));
}

/// Nothing of a text may be lost. Only a space that a broken character swallowed and U+2581 come
/// back as each other.
void FuzzPieces(const Tokenizer& tokenizer, std::string_view text) {
  const auto spaces = [](std::string_view from) {
    std::string out;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const bool spelled = from.substr(i).starts_with("▁");
      out.push_back(spelled ? ' ' : from[i]);
      if (spelled) i += 2;
    }
    return out;
  };
  for (const bool parse : {false, true}) {
    const auto ids = tokenizer.Encode(text, {.parse_special = parse});
    Require(ids.has_value());
    const auto bytes = tokenizer.Decode(*ids, true);
    Require(bytes.has_value());
    Require(spaces(*bytes) == spaces(text));
  }
}

/// Every byte has a token, so nothing may be lost, and streaming must agree with decoding at once.
void FuzzText(const Tokenizer& tokenizer, std::string_view text) {
  NormalizeBuffer buffer;
  for (const bool parse : {false, true}) {
    const auto ids = tokenizer.Encode(text, {.parse_special = parse});
    Require(ids.has_value());
    const auto bytes = tokenizer.Decode(*ids, true);
    Require(bytes.has_value());
    // Special tokens cut the text before it is looked at as UTF-8, but none of these can cut a
    // character.
    Require(*bytes == Normalize(text, buffer).bytes);

    StreamDecoder decoder(tokenizer, true);
    std::string streamed;
    for (const TokenId id : *ids) streamed += decoder.Push(id).value();
    streamed += decoder.Flush();
    std::string rest = *bytes;
    std::string expected;
    TakeCompleteCharacters(rest, expected);
    if (!rest.empty()) expected += kReplacement;
    Require(streamed == expected);
    Require(Normalize(streamed, buffer).bytes.data() ==
            streamed.data());  // well-formed: not copied
  }
}

/// Lines of the input are tokens, each after a character for its type, merges ("m...") and lengths
/// that become scores ("s..."); the rest is text. `model` is the family.
void FuzzVocabulary(const char* model, std::string_view input) {
  TokenizerSpec spec;
  spec.model = model;
  spec.pre = kPres[input.size() % std::size(kPres)];
  std::size_t at = 0;
  while (at < input.size()) {
    const std::size_t end = std::min(input.find('\n', at), input.size());
    const std::string_view line = input.substr(at, end - at);
    at = end + 1;
    if (line.empty()) break;
    const std::string_view value = line.substr(1);
    switch (line[0]) {
      case 'm':
        spec.merges.push_back(value);
        break;
      case 's':
        spec.scores.push_back(static_cast<float>(value.size()));
        break;
      case '<':  // all byte tokens
        for (const std::string& text : ByteNames()) {
          spec.tokens.push_back(text);
          spec.token_types.push_back(static_cast<std::int32_t>(TokenType::kByte));
        }
        spec.scores.resize(spec.tokens.size());
        break;
      case 'b':
        spec.bos = static_cast<TokenId>(value.size()) - 2;
        break;
      default:
        spec.tokens.push_back(value);
        spec.token_types.push_back(static_cast<signed char>(line[0]) - '0');
    }
  }
  const auto tokenizer = Tokenizer::Create(spec);
  if (!tokenizer) {
    Require(!tokenizer.error().message.empty());
    return;
  }
  const auto ids = tokenizer->Encode(input.substr(std::min(at, input.size())));
  Require(ids.has_value());
  for (const TokenId id : *ids) Require(id >= 0 && id < tokenizer->vocab_size());
  Require(tokenizer->Decode(*ids, true).has_value());
}

}  // namespace
}  // namespace tilewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace tw = tilewright;
  static const std::vector<tw::Tokenizer> tokenizers = [] {
    std::vector<tw::Tokenizer> all;
    for (const char* pre : tw::kPres) all.push_back(tw::MakeTokenizer(pre));
    return all;
  }();
  static const tw::Tokenizer pieces = tw::MakePieces();
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 3:
      tw::FuzzVocabulary("gpt2", input);
      break;
    case 5:
      tw::FuzzPieces(pieces, input);
      break;
    case 6:
      tw::FuzzVocabulary("llama", input);
      break;
    default:
      tw::FuzzText(tokenizers[data[0] % tokenizers.size()], input);
  }
  return 0;
}
