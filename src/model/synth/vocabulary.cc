#include "model/synth/vocabulary.h"

#include <array>
#include <utility>

namespace tilewright::synth {
namespace {

constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kUnknown = 2;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kByte = 6;
constexpr int kBytes = 256;
// Characters of the merges, the most common in English first: 96 * 96 pairs.
constexpr std::string_view kCharacters =
    " etaoinsrhldcumfpgwybvkxjqz\n.,ETAOINSRHLDCUMFPGWYBVKXJQZ0123456789'\"-()_:;=/"
    "*<>[]{}!?+#$%&@\\^`|~";
constexpr int kPairs = static_cast<int>(kCharacters.size() * kCharacters.size());
constexpr int kThirds = 16;  // characters that may follow a pair in a triple, or a triple
constexpr int kLlama3Special = 256;
constexpr int kGptOssSpecial = 21, kGptOssReturn = 4;

// Appends a code point below 0x800.
void AppendUtf8(std::string& out, int code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  out += static_cast<char>(0xc0 | (code >> 6));
  out += static_cast<char>(0x80 | (code & 0x3f));
}

// The printable character for each byte, as defined by GPT-2: printable Latin-1 characters
// represent themselves; the other bytes get the code points from 256, in order.
std::array<std::string, kBytes> ByteSpellings() {
  std::array<std::string, kBytes> spellings;
  int next = 256;
  for (int byte = 0; byte < kBytes; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    AppendUtf8(spellings[static_cast<std::size_t>(byte)], printable ? byte : next++);
  }
  return spellings;
}

// As gpt-oss numbers them, from 199998 on.
std::vector<std::string> GptOssSpecialTokens() {
  constexpr int kFirst = 199998;
  std::vector<std::string> tokens(kGptOssSpecial);
  for (int i = 0; i < kGptOssSpecial; ++i)
    tokens[static_cast<std::size_t>(i)] = "<|reserved_" + std::to_string(kFirst + i) + "|>";
  tokens[0] = "<|startoftext|>";
  tokens[1] = "<|endoftext|>";
  tokens[kGptOssReturn] = "<|return|>";
  tokens[5] = "<|constrain|>";
  tokens[7] = "<|channel|>";
  tokens[8] = "<|start|>";
  tokens[9] = "<|end|>";
  tokens[10] = "<|message|>";
  tokens[14] = "<|call|>";
  tokens[20] = "<|endofprompt|>";
  return tokens;
}

std::vector<std::string> SpecialTokens(SynthVocab style) {
  switch (style) {
    case SynthVocab::kSmolLm:
    case SynthVocab::kQwen:
      return {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    case SynthVocab::kGpt2:
    case SynthVocab::kSentencePiece:
    case SynthVocab::kPhi3:
      return {"<unk>", "<s>", "</s>"};
    case SynthVocab::kGptOss:
      return GptOssSpecialTokens();
    case SynthVocab::kLlama3:
      break;
  }
  std::vector<std::string> tokens(kLlama3Special);
  for (int i = 0; i < kLlama3Special; ++i) {
    tokens[static_cast<std::size_t>(i)] = "<|reserved_special_token_" + std::to_string(i) + "|>";
  }
  tokens[0] = "<|begin_of_text|>";
  tokens[1] = "<|end_of_text|>";
  tokens[6] = "<|start_header_id|>";
  tokens[7] = "<|end_header_id|>";
  tokens[8] = "<|eom_id|>";
  tokens[9] = "<|eot_id|>";
  return tokens;
}

class Builder {
 public:
  void Add(std::string token, std::int32_t type) {
    out.tokens.push_back(std::move(token));
    out.types.push_back(type);
  }

  // `count` merged tokens.
  void AddMerges(int count) {
    const auto spell = ByteSpellings();
    const auto character = [&spell](int i) -> const std::string& {
      return spell[static_cast<unsigned char>(kCharacters[static_cast<std::size_t>(i)])];
    };
    const int size = static_cast<int>(kCharacters.size());
    std::vector<std::string> pairs;
    // In growing squares: the first (n + 1)^2 pairs are all pairs of the n + 1 most common
    // characters.
    for (int n = 0; n < size; ++n) {
      for (int i = 0; i < 2 * n + 1; ++i) {
        if (count == 0) return;
        --count;
        const std::string& left = character(i < n ? i : n);
        const std::string& right = character(i < n ? n : i - n);
        out.merges.push_back(left + " " + right);
        pairs.push_back(left + right);
        Add(pairs.back(), kNormal);
      }
    }
    std::vector<std::string> longer = std::move(pairs);
    for (int turn = 0; turn < 2; ++turn) {  // triples, then runs of four
      const std::vector<std::string> starts = std::exchange(longer, {});
      for (const std::string& start : starts) {
        for (int next = 0; next < kThirds; ++next) {
          if (count == 0) return;
          --count;
          out.merges.push_back(start + " " + character(next));
          longer.push_back(start + character(next));
          Add(longer.back(), kNormal);
        }
      }
    }
  }

  Vocabulary out;
};

// Pieces of two, three and four characters, the most common in English first. A space stands only in
// front or beside spaces, and a line end has no piece, so that text falls into words as in trained
// vocabularies. At most `most`.
std::vector<std::string> Pieces(std::size_t most) {
  const auto spell = [](char c) {
    return c == ' ' ? std::string("\xe2\x96\x81") : std::string(1, c);
  };
  const auto joins = [](char left, char right) {
    return left != '\n' && right != '\n' && (right != ' ' || left == ' ');
  };
  std::vector<std::pair<char, char>> pairs;
  std::vector<std::string> pieces;
  for (std::size_t n = 0; n < kCharacters.size(); ++n) {
    for (std::size_t i = 0; i < 2 * n + 1; ++i) {
      const char left = kCharacters[i < n ? i : n];
      const char right = kCharacters[i < n ? n : i - n];
      if (!joins(left, right)) continue;
      if (pieces.size() == most) return pieces;
      pairs.emplace_back(left, right);
      pieces.push_back(spell(left) + spell(right));
    }
  }
  std::vector<std::string> triples;
  std::vector<char> last;
  for (const auto& [left, right] : pairs) {
    for (const char third : kCharacters.substr(0, kThirds)) {
      if (!joins(right, third) || (third == ' ' && left != ' ')) continue;
      if (pieces.size() == most) return pieces;
      pieces.push_back(spell(left) + spell(right) + spell(third));
      if (third != ' ') triples.push_back(pieces.back()), last.push_back(third);
    }
  }
  for (std::size_t i = 0; i < triples.size(); ++i) {
    for (const char fourth : kCharacters.substr(0, kThirds)) {
      if (fourth == ' ' || !joins(last[i], fourth)) continue;
      if (pieces.size() == most) return pieces;
      pieces.push_back(triples[i] + spell(fourth));
    }
  }
  return pieces;
}

constexpr std::size_t kCharacterPieces = kCharacters.size() - 1;  // all but the line end

// `added` comes last.
Vocabulary MakePieces(int size, std::string_view added = "") {
  Vocabulary out;
  const auto add = [&out](std::string token, std::int32_t type, float score) {
    out.tokens.push_back(std::move(token));
    out.types.push_back(type);
    out.scores.push_back(score);
  };
  for (const std::string& token : SpecialTokens(SynthVocab::kSentencePiece))
    add(token, out.tokens.empty() ? kUnknown : kControl, 0);
  for (int byte = 0; byte < kBytes; ++byte) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    const auto digit = [&](int i) { return kHex[static_cast<std::size_t>(i)]; };
    add(std::string("<0x") + digit(byte / 16) + digit(byte % 16) + ">", kByte, 0);
  }
  float score = 0;
  const std::size_t rest =
      static_cast<std::size_t>(size) - out.tokens.size() - (added.empty() ? 0 : 1);
  for (const std::string& piece : Pieces(rest - kCharacterPieces)) add(piece, kNormal, score--);
  for (const char c : kCharacters) {
    if (c != '\n') add(c == ' ' ? "\xe2\x96\x81" : std::string(1, c), kNormal, score--);
  }
  if (!added.empty()) add(std::string(added), kControl, score);
  out.model = "llama";
  out.pre = "default";
  out.bos = 1;
  out.eos = added.empty() ? 2 : static_cast<std::uint32_t>(size - 1);
  out.add_bos = true;
  return out;
}

}  // namespace

VocabularyLimits LimitsOf(SynthVocab style) {
  if (style == SynthVocab::kSentencePiece || style == SynthVocab::kPhi3) {
    const int added = style == SynthVocab::kPhi3 ? 1 : 0;
    const auto fixed =
        static_cast<int>(kBytes + SpecialTokens(style).size() + kCharacterPieces) + added;
    static const auto pieces = static_cast<int>(Pieces(std::size_t{1} << 20).size());
    return {fixed, fixed + pieces};
  }
  const int fixed = kBytes + static_cast<int>(SpecialTokens(style).size());
  return {fixed, fixed + kPairs + kPairs * kThirds + kPairs * kThirds * kThirds};
}

Vocabulary MakeVocabulary(SynthVocab style, int size) {
  if (style == SynthVocab::kSentencePiece) return MakePieces(size);
  if (style == SynthVocab::kPhi3) return MakePieces(size, "<|endoftext|>");
  const std::vector<std::string> special = SpecialTokens(style);
  const int merged = size - kBytes - static_cast<int>(special.size());
  const bool special_last =
      style == SynthVocab::kLlama3 || style == SynthVocab::kQwen || style == SynthVocab::kGptOss;

  Builder builder;
  const auto add_special = [&] {
    for (const std::string& token : special) builder.Add(token, kControl);
  };
  if (!special_last) add_special();
  for (const std::string& token : ByteSpellings()) builder.Add(token, kNormal);
  builder.AddMerges(merged);
  if (special_last) add_special();

  Vocabulary vocabulary = std::move(builder.out);
  vocabulary.model = "gpt2";
  switch (style) {
    case SynthVocab::kSmolLm:
    case SynthVocab::kGpt2:
      vocabulary.pre = style == SynthVocab::kSmolLm ? "smollm" : "gpt-2";
      vocabulary.bos = 1;
      vocabulary.eos = 2;
      vocabulary.add_bos = style == SynthVocab::kGpt2;
      break;
    case SynthVocab::kLlama3:
      vocabulary.pre = "llama-bpe";
      vocabulary.bos = static_cast<std::uint32_t>(size - kLlama3Special);
      vocabulary.eos = vocabulary.bos + 9;
      vocabulary.add_bos = true;
      break;
    case SynthVocab::kQwen:
      vocabulary.pre = "qwen2";
      vocabulary.bos = static_cast<std::uint32_t>(size - 3);
      vocabulary.eos = vocabulary.bos + 2;
      break;
    case SynthVocab::kGptOss:
      vocabulary.pre = "gpt-4o";
      vocabulary.bos = static_cast<std::uint32_t>(size - kGptOssSpecial);
      vocabulary.eos = vocabulary.bos + kGptOssReturn;
      break;
    case SynthVocab::kSentencePiece:
    case SynthVocab::kPhi3:
      break;
  }
  return vocabulary;
}

}  // namespace tilewright::synth
