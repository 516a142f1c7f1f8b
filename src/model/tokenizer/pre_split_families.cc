// The pre-tokenizers' regular expressions, as data.
//
// Where llama.cpp splits otherwise than the model's published tokenizer.json, this follows
// llama.cpp, so that the ids are the same:
// - tekken, gpt-4o: letters outside of ASCII count as both upper and lower case, and marks as
//   no letters.
// - deepseek-llm: U+3000 is white space only, not punctuation too.
#include "model/tokenizer/pre_split_families.h"

#include <array>

namespace tilewright {
namespace {

// Contents of character classes. PCRE2 10.42, the one in Debian 12 and Ubuntu 24.04, knows Unicode
// 14; the ranges are what versions 15.0 and 15.1 added. White space is spelled out because PCRE2
// also counts U+180E.
#define TW_SPACE \
  R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define TW_NEW_LETTER                                                                                \
  R"(\x{1123f}\x{11240}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446})" \
  R"(\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb}\x{2b739})"          \
  R"(\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})"
#define TW_LETTER R"(\p{L})" TW_NEW_LETTER
#define TW_NUMBER R"(\p{N}\x{11f50}-\x{11f59}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9})"
#define TW_PUNCTUATION R"(\p{P}\x{11b00}-\x{11b09}\x{11f43}-\x{11f4f})"
#define TW_SYMBOL                                                                           \
  R"(\p{S}\x{2ffc}-\x{2fff}\x{31ef}\x{1f6dc}\x{1f774}-\x{1f776}\x{1f77b}-\x{1f77f})"        \
  R"(\x{1f7d9}\x{1fa75}-\x{1fa77}\x{1fa87}\x{1fa88}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabd})" \
  R"(\x{1fabf}\x{1face}\x{1facf}\x{1fada}\x{1fadb}\x{1fae8}\x{1faf7}\x{1faf8})"
#define TW_MARK                                                                                      \
  R"(\p{M}\x{cf3}\x{ece}\x{10efd}-\x{10eff}\x{11241}\x{11f00}\x{11f01}\x{11f03}\x{11f34}-\x{11f3a})" \
  R"(\x{11f3e}-\x{11f42}\x{13440}\x{13447}-\x{13455}\x{1e08f}\x{1e4ec}-\x{1e4ef})"
#define TW_OTHER \
  "[^" TW_SPACE TW_LETTER TW_NUMBER "]"  // punctuation, symbols, marks, controls, unassigned

// The published patterns, rearranged for speed but with the same matches: ASCII, which is decided
// by a bitmap, is tried first, then the Unicode classes; repetition is possessive where
// backtracking cannot help. The time that any of them takes is proportional to the text.
#define TW_LETTERS "(?: ?[A-Za-z]++[" TW_LETTER "]*+| ?[" TW_LETTER "]++)"
#define TW_ASCII_OTHER R"([!-/:-@\[-`{-~])"
#define TW_OTHERS "(?: ?" TW_ASCII_OTHER "++" TW_OTHER "*+| ?" TW_OTHER "++)"
#define TW_SPACES "[" TW_SPACE "]+(?![^" TW_SPACE "])|[" TW_SPACE "]+"
#define TW_LINES "[" TW_SPACE "]*[\\r\\n]++|" TW_SPACES
// (?i:'s|'t|'re|'ve|'m|'ll|'d), spelled out: (?i) would take U+017F for an s.
#define TW_CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#define TW_GPT2 "'(?:[stmd]|re|ve|ll)|" TW_LETTERS "| ?[" TW_NUMBER "]++|" TW_OTHERS "|" TW_SPACES
constexpr PreSplitStage kGpt2[] = {{TW_GPT2, true}};

// The same after every number was cut out by itself (\p{N}): no number has a space before it, and
// for the white space before a number the text ends there, so that it stays whole.
constexpr PreSplitStage kDigits[] = {{"'(?:[stmd]|re|ve|ll)|" TW_LETTERS "|[" TW_NUMBER
                                      "]|" TW_OTHERS "|[" TW_SPACE "]+(?![^" TW_SPACE TW_NUMBER
                                      "])|[" TW_SPACE "]+",
                                      true}};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
#define TW_LLAMA3(NUMBERS)                                                                     \
  TW_CONTRACTION "| ?[A-Za-z]++[" TW_LETTER "]*+|[^\\r\\n" TW_LETTER TW_NUMBER "]?[" TW_LETTER \
                 "]++|" NUMBERS "|" TW_OTHERS "[\\r\\n]*+|" TW_LINES
constexpr PreSplitStage kLlama3[] = {{TW_LLAMA3("[" TW_NUMBER "]{1,3}+"), true}};
// The same with \p{N} for \p{N}{1,3}.
constexpr PreSplitStage kQwen2[] = {{TW_LLAMA3("[" TW_NUMBER "]"), true}};

// [^\r\n\p{L}\p{N}]?U*L+|[^\r\n\p{L}\p{N}]?U+L*, where U are letters but a to z and L letters
// but A to Z. U* takes all it can and must leave something to L+. If a lower-case letter follows,
// that is it; else U* goes back to the last letter that is both; if there is none, the word is
// upper case alone. Written as these three cases, nothing is tried twice. (Published: U are
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], L [\p{Ll}\p{Lm}\p{Lo}\p{M}].)
#define TW_CASELESS R"((?:[^\P{L}\x00-\x7f]|[)" TW_NEW_LETTER "])"
#define TW_CASED_WORD                                           \
  "[^\\r\\n" TW_LETTER TW_NUMBER "]?(?:(?:[A-Z]++|" TW_CASELESS \
  "++)*+[a-z](?:[a-z]++|" TW_CASELESS "++)*+|(?:[A-Z]*+" TW_CASELESS "++)++|[A-Z]++)"
#define TW_CASED_REST TW_OTHERS "[\\r\\n/]*+|" TW_LINES

// The cased words, then |\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
constexpr PreSplitStage kTekken[] = {{TW_CASED_WORD "|[" TW_NUMBER "]|" TW_CASED_REST, true}};
// The cased words with an optional contraction at the end, and \p{N}{1,3}.
constexpr PreSplitStage kGpt4o[] = {
    {TW_CASED_WORD "(?:" TW_CONTRACTION ")?+|[" TW_NUMBER "]{1,3}+|" TW_CASED_REST, true}};

constexpr PreSplitStage kFalcon[] = {
    {"[" TW_PUNCTUATION R"($+<=>^~|`]++)", false}, {TW_GPT2, true}, {"[0-9][0-9][0-9]", false}};

constexpr PreSplitStage kNewline = {R"([\r\n])", false};

// [\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+, in which white space is none of it.
constexpr PreSplitStage kDeepSeekHan = {
    R"([\x{800}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e})"
    R"(\x{2060}-\x{2fff}\x{3001}-\x{9fa5}\x{ac00}-\x{d7ff}]++)",
    false};

// Letters of scripts with upper and lower case.
#define TW_DEEPSEEK_LETTER                                                          \
  R"(A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293})"       \
  R"(\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386})"    \
  R"(\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481})"          \
  R"(\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5})"             \
  R"(\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b})"         \
  R"(\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d})"         \
  R"(\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d})"  \
  R"(\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4})" \
  R"(\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec})"         \
  R"(\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115})"  \
  R"(\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134})"  \
  R"(\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184})"           \
  R"(\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3})"          \
  R"(\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787})"         \
  R"(\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17})"         \
  R"(\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3})"     \
  R"(\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df})" \
  R"(\x{1e900}-\x{1e943})"
constexpr PreSplitStage kDeepSeekLlm[] = {
    kNewline,
    {"[" TW_SPACE "]?[" TW_DEEPSEEK_LETTER "]++", false},
    {"[" TW_SPACE
     R"(]?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3001}\x{3002}]++)",
     false},
    // \s+$. Only the start of a run is tried, else a long run that does not end the piece would
    // take quadratic time.
    {"(?<![" TW_SPACE "])[" TW_SPACE R"(]++\z)", false},
    kDeepSeekHan,
    {"[" TW_NUMBER "]++", false}};

constexpr PreSplitStage kDeepSeekCoder[] = {kNewline,
                                            {"[" TW_SPACE "]?[" TW_LETTER "]++", false},
                                            {"[" TW_SPACE "]?[" TW_PUNCTUATION "]++", false},
                                            kDeepSeekHan,
                                            {"[" TW_NUMBER "]", false}};

// \p{N}{1,3}, then Han, hiragana and katakana, then
// [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
constexpr PreSplitStage kDeepSeek3[] = {
    {"[" TW_NUMBER "]{1,3}+", false},
    {R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]++)", false},
    {TW_ASCII_OTHER "[A-Za-z]++|[^\\r\\n" TW_LETTER TW_PUNCTUATION TW_SYMBOL "]?[" TW_LETTER TW_MARK
                    "]++| ?[" TW_PUNCTUATION TW_SYMBOL "]++[\\r\\n]*+|" TW_LINES,
     false}};

constexpr std::array kFamilies = {
    PreSplitFamily{"gpt-2", kGpt2, false, false},
    PreSplitFamily{"llama-bpe", kLlama3, true, true},
    PreSplitFamily{"smollm", kDigits, false, false},
    PreSplitFamily{"qwen2", kQwen2, false, false},
    PreSplitFamily{"dbrx", kLlama3, false, false},
    PreSplitFamily{"tekken", kTekken, true, true},
    PreSplitFamily{"gpt-4o", kGpt4o, false, false},
    PreSplitFamily{"falcon", kFalcon, false, false},
    PreSplitFamily{"deepseek-llm", kDeepSeekLlm, false, false},
    PreSplitFamily{"deepseek-coder", kDeepSeekCoder, false, false},
    PreSplitFamily{"deepseek-v3", kDeepSeek3, false, false},
};

struct Alias {
  std::string_view pre;
  std::string_view family;
};

// Further values of tokenizer.ggml.pre for which llama.cpp runs the same splits with the same
// defaults. gpt-oss has no name of its own: its files say gpt-4o.
constexpr std::array kAliases = {
    Alias{"phi-2", "gpt-2"},
    Alias{"mpt", "gpt-2"},
    Alias{"olmo", "gpt-2"},
    Alias{"jais", "gpt-2"},
    Alias{"trillion", "gpt-2"},
    Alias{"gigachat", "gpt-2"},
    Alias{"mellum", "gpt-2"},
    Alias{"exaone4", "gpt-2"},
    Alias{"a.x-4.0", "gpt-2"},
    Alias{"llama3", "llama-bpe"},
    Alias{"llama-v3", "llama-bpe"},
    Alias{"falcon3", "llama-bpe"},
    Alias{"falcon-h1", "llama-bpe"},
    Alias{"pixtral", "llama-bpe"},
    Alias{"midm-2.0", "llama-bpe"},
    Alias{"lfm2", "llama-bpe"},
    Alias{"starcoder", "smollm"},
    Alias{"refact", "smollm"},
    Alias{"command-r", "smollm"},
    Alias{"codeshell", "smollm"},
    Alias{"exaone", "smollm"},
    Alias{"minerva-7b", "smollm"},
    Alias{"deepseek-r1-qwen", "qwen2"},
    Alias{"stablelm2", "qwen2"},
    Alias{"megrez", "qwen2"},
    Alias{"hunyuan", "qwen2"},
    Alias{"kormo", "qwen2"},
    Alias{"solar-open", "qwen2"},
    Alias{"grok-2", "qwen2"},
    Alias{"smaug-bpe", "dbrx"},
    Alias{"llama4", "gpt-4o"},
    Alias{"kanana2", "gpt-4o"},
    Alias{"minimax-m2", "gpt-4o"},
    Alias{"hunyuan-dense", "deepseek-v3"},
    Alias{"joyai-llm", "deepseek-v3"},
};

}  // namespace

const PreSplitFamily* FindPreSplitFamily(std::string_view pre) {
  for (const Alias& alias : kAliases) {
    if (alias.pre == pre) pre = alias.family;
  }
  for (const PreSplitFamily& family : kFamilies) {
    if (family.name == pre) return &family;
  }
  return nullptr;
}

std::string KnownPreSplits() {
  std::string known;
  const auto add = [&known](std::string_view name) {
    known.append(known.empty() ? "" : ", ").append(name);
  };
  for (const PreSplitFamily& family : kFamilies) add(family.name);
  for (const Alias& alias : kAliases) add(alias.pre);
  return known;
}

}  // namespace tilewright
