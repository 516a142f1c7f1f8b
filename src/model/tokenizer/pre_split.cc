#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer/pre_split.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <limits>
#include <utility>

namespace tilewright {
namespace {

// Contents of character classes. PCRE2 10.42, the one in Debian 12 and Ubuntu 24.04, knows Unicode
// 14; the ranges are what versions 15.0 and 15.1 added. White space is spelled out because PCRE2
// also counts U+180E.
#define TW_SPACE \
  R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define TW_LETTER                                                                                         \
  R"(\p{L}\x{1123f}\x{11240}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446})" \
  R"(\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb}\x{2b739})"               \
  R"(\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})"
#define TW_NUMBER R"(\p{N}\x{11f50}-\x{11f59}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9})"
#define TW_OTHER \
  "[^" TW_SPACE TW_LETTER TW_NUMBER "]"  // punctuation, symbols, marks, controls, unassigned

// The published patterns, rearranged for speed but with the same matches: ASCII, which is decided
// by a bitmap, is tried first, then the Unicode classes; repetition is possessive where
// backtracking cannot help.
#define TW_LETTERS "(?: ?[A-Za-z]++[" TW_LETTER "]*+| ?[" TW_LETTER "]++)"
#define TW_ASCII_OTHER R"([!-/:-@\[-`{-~])"
#define TW_OTHERS "(?: ?" TW_ASCII_OTHER "++" TW_OTHER "*+| ?" TW_OTHER "++)"
#define TW_SPACES "[" TW_SPACE "]+(?![^" TW_SPACE "])|[" TW_SPACE "]+"

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
constexpr std::string_view kGpt2Pattern =
    "'(?:[stmd]|re|ve|ll)|" TW_LETTERS "| ?[" TW_NUMBER "]++|" TW_OTHERS "|" TW_SPACES;

// The same after every number was cut out by itself: no number has a space before it, and for the
// white space before a number the text ends there, so that it stays whole.
constexpr std::string_view kDigitsPattern =
    "'(?:[stmd]|re|ve|ll)|" TW_LETTERS "|[" TW_NUMBER "]|" TW_OTHERS "|[" TW_SPACE
    "]+(?![^" TW_SPACE TW_NUMBER "])|[" TW_SPACE "]+";

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
// The contractions are spelled out: (?i) would take U+017F for an s.
constexpr std::string_view kLlama3Pattern =
    "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|"
    " ?[A-Za-z]++[" TW_LETTER "]*+|[^\\r\\n" TW_LETTER TW_NUMBER "]?[" TW_LETTER "]++|[" TW_NUMBER
    "]{1,3}+|" TW_OTHERS "[\\r\\n]*+|[" TW_SPACE "]*[\\r\\n]++|" TW_SPACES;

constexpr std::array<PreSplitter::Family, 3> kFamilies = {{
    {"gpt-2", kGpt2Pattern, false, false},
    {"llama-bpe", kLlama3Pattern, true, true},
    {"smollm", kDigitsPattern, false, false},
}};

struct Alias {
  std::string_view pre;
  int family;
};

// Values of tokenizer.ggml.pre for which llama.cpp runs the same splits with the same defaults.
constexpr std::array kAliases = {
    Alias{"gpt-2", 0},      Alias{"phi-2", 0},     Alias{"mpt", 0},       Alias{"olmo", 0},
    Alias{"jais", 0},       Alias{"trillion", 0},  Alias{"gigachat", 0},  Alias{"mellum", 0},
    Alias{"exaone4", 0},    Alias{"a.x-4.0", 0},   Alias{"llama-bpe", 1}, Alias{"llama3", 1},
    Alias{"llama-v3", 1},   Alias{"falcon3", 1},   Alias{"falcon-h1", 1}, Alias{"pixtral", 1},
    Alias{"midm-2.0", 1},   Alias{"lfm2", 1},      Alias{"smollm", 2},    Alias{"starcoder", 2},
    Alias{"refact", 2},     Alias{"command-r", 2}, Alias{"codeshell", 2}, Alias{"exaone", 2},
    Alias{"minerva-7b", 2},
};

std::string Pcre2Message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct PreSplitter::Program {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> limits;
  bool jit = false;
};

PreSplitter::PreSplitter(const Family* family, std::unique_ptr<const Program> program)
    : family_(family), program_(std::move(program)) {}
PreSplitter::PreSplitter(PreSplitter&&) noexcept = default;
PreSplitter& PreSplitter::operator=(PreSplitter&&) noexcept = default;
PreSplitter::~PreSplitter() = default;

Result<PreSplitter> PreSplitter::Create(std::string_view pre, Options options) {
  const Family* family = nullptr;
  for (const Alias& alias : kAliases) {
    if (alias.pre == pre) family = &kFamilies[static_cast<std::size_t>(alias.family)];
  }
  if (family == nullptr) {
    std::string known;
    for (const Alias& alias : kAliases) known.append(known.empty() ? "" : ", ").append(alias.pre);
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("tokenizer.ggml.pre = '{}': unknown pre-tokenizer; known are {}", pre, known));
  }
  auto program = std::make_unique<Program>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  program->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(family->pattern.data()),
                                    family->pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                                    &error, &offset, nullptr));
  if (!program->code) {
    return Fail(ErrorCode::kInternal, fmt::format("PCRE2 rejects the pattern of '{}' at {}: {}",
                                                  family->name, offset, Pcre2Message(error)));
  }
  program->limits.reset(pcre2_match_context_create(nullptr));
  if (!program->limits)
    return Fail(ErrorCode::kOutOfMemory, "PCRE2: no memory for a match context");
  // By default PCRE2 gives up after ten million steps, which a run of ten million spaces reaches.
  // The time these patterns take is always proportional to the text, so no limit is needed.
  pcre2_set_match_limit(program->limits.get(), std::numeric_limits<std::uint32_t>::max());
  program->jit = options.jit && pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return PreSplitter(family, std::move(program));
}

struct PreSplitter::Cursor::State {
  const Program* program;
  std::string_view text;
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> match;
};

PreSplitter::Cursor::Cursor(const PreSplitter& splitter, std::string_view text)
    : state_(new State{splitter.program_.get(), text, nullptr}) {
  state_->match.reset(pcre2_match_data_create(1, nullptr));
}
PreSplitter::Cursor::~Cursor() = default;

Result<bool> PreSplitter::Cursor::Next() {
  const State& state = *state_;
  begin_ = end_;
  if (begin_ == state.text.size()) return false;
  if (!state.match) return Fail(ErrorCode::kOutOfMemory, "PCRE2: no memory for match data");
  // No pattern looks behind, so the rest of the text can be passed as a separate text.
  const auto* rest = reinterpret_cast<PCRE2_SPTR>(state.text.data()) + begin_;
  const std::size_t size = state.text.size() - begin_;
  const Program& program = *state.program;
  int count = PCRE2_ERROR_JIT_STACKLIMIT;
  if (program.jit)
    count = pcre2_jit_match(program.code.get(), rest, size, 0, 0, state.match.get(),
                            program.limits.get());
  // Without JIT, or if its fixed stack is too small, use the interpreter, which allocates from the
  // heap.
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
    count = pcre2_match(program.code.get(), rest, size, 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        state.match.get(), program.limits.get());
  }
  if (count < 1) {
    return Fail(ErrorCode::kInternal,
                fmt::format("splitting text at byte {}: PCRE2: {}", begin_, Pcre2Message(count)));
  }
  end_ = begin_ + pcre2_get_ovector_pointer(state.match.get())[1];
  return true;
}

}  // namespace tilewright
