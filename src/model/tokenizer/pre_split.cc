#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer/pre_split.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <limits>
#include <utility>
#include <vector>

namespace tilewright {
namespace {

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

struct CompiledStage {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  bool jit = false;
  bool covers = false;
};

Result<CompiledStage> Compile(const PreSplitFamily& family, const PreSplitStage& stage, bool jit) {
  CompiledStage compiled;
  compiled.covers = stage.covers;
  const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | (stage.covers ? PCRE2_ANCHORED : 0);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(stage.pattern.data()),
                                    stage.pattern.size(), options, &error, &offset, nullptr));
  if (!compiled.code) {
    return Fail(ErrorCode::kInternal, fmt::format("PCRE2 rejects the pattern of '{}' at {}: {}",
                                                  family.name, offset, Pcre2Message(error)));
  }
  compiled.jit = jit && pcre2_jit_compile(compiled.code.get(), PCRE2_JIT_COMPLETE) == 0;
  return compiled;
}

}  // namespace

struct PreSplitter::Program {
  std::vector<CompiledStage> stages;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> limits;
};

PreSplitter::PreSplitter(const Family* family, std::unique_ptr<const Program> program)
    : family_(family), program_(std::move(program)) {}
PreSplitter::PreSplitter(PreSplitter&&) noexcept = default;
PreSplitter& PreSplitter::operator=(PreSplitter&&) noexcept = default;
PreSplitter::~PreSplitter() = default;

Result<PreSplitter> PreSplitter::Create(std::string_view pre, Options options) {
  const Family* family = FindPreSplitFamily(pre);
  if (family == nullptr) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("tokenizer.ggml.pre = '{}': unknown pre-tokenizer; known are {}", pre,
                            KnownPreSplits()));
  }
  auto program = std::make_unique<Program>();
  for (const PreSplitStage& stage : family->stages) {
    Result<CompiledStage> compiled = Compile(*family, stage, options.jit);
    if (!compiled) return Fail(std::move(compiled.error()));
    program->stages.push_back(std::move(*compiled));
  }
  program->limits.reset(pcre2_match_context_create(nullptr));
  if (!program->limits)
    return Fail(ErrorCode::kOutOfMemory, "PCRE2: no memory for a match context");
  // By default PCRE2 gives up after ten million steps, which a run of ten million spaces reaches.
  // The time these patterns take is always proportional to the text, so no limit is needed.
  pcre2_set_match_limit(program->limits.get(), std::numeric_limits<std::uint32_t>::max());
  return PreSplitter(family, std::move(program));
}

struct PreSplitter::Cursor::State {
  /// What a stage works on.
  struct Level {
    std::size_t begin = 0;  ///< of the piece that the stage before made
    std::size_t end = 0;
    std::size_t at = 0;         ///< what lies before was passed on
    std::size_t match_end = 0;  ///< above `at`: the match that begins at `at` ends here
  };

  /// Finds the next match of the stage in text[base, end), from `at` on; where it lies is in
  /// `match`, relative to `base`. Returns PCRE2's result: positive for a match.
  int Match(const CompiledStage& stage, std::size_t base, std::size_t at, std::size_t end) const;
  /// Moves the level's `at` to the end of its next piece. Returns PCRE2's error, or 0.
  int Advance(std::size_t stage);

  const Program* program;
  std::string_view text;
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> match;
  std::vector<Level> levels;  ///< one for each stage
  std::size_t depth = 0;      ///< of the stage that made the last word, or the last before it
};

int PreSplitter::Cursor::State::Match(const CompiledStage& stage, std::size_t base, std::size_t at,
                                      std::size_t end) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data()) + base;
  int count = PCRE2_ERROR_JIT_STACKLIMIT;
  if (stage.jit) {
    count = pcre2_jit_match(stage.code.get(), subject, end - base, at - base, 0, match.get(),
                            program->limits.get());
  }
  // Without JIT, or if its fixed stack is too small, use the interpreter, which allocates from the
  // heap.
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
    count = pcre2_match(stage.code.get(), subject, end - base, at - base,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(), program->limits.get());
  }
  return count;
}

int PreSplitter::Cursor::State::Advance(std::size_t stage) {
  const CompiledStage& compiled = program->stages[stage];
  Level& level = levels[stage];
  if (level.match_end > level.at) {
    level.at = level.match_end;
    return 0;
  }
  // A pattern may look back as far as its piece goes; those that cover the text never do.
  const std::size_t base = compiled.covers ? level.at : level.begin;
  const int count = Match(compiled, base, level.at, level.end);
  if (count == PCRE2_ERROR_NOMATCH && !compiled.covers) {
    level.at = level.end;
    return 0;
  }
  if (count < 1) return count;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());
  const std::size_t begin = base + found[0];
  // What precedes the match is a piece, and then the match is the next.
  level.match_end = base + found[1];
  level.at = begin > level.at ? begin : level.match_end;
  return 0;
}

PreSplitter::Cursor::Cursor(const PreSplitter& splitter, std::string_view text)
    : state_(new State{splitter.program_.get(), text, nullptr, {}, 0}) {
  state_->match.reset(pcre2_match_data_create(1, nullptr));
  state_->levels.resize(splitter.program_->stages.size());
  state_->levels[0].end = text.size();
}
PreSplitter::Cursor::~Cursor() = default;

Result<bool> PreSplitter::Cursor::Next() {
  State& state = *state_;
  begin_ = end_;
  if (begin_ == state.text.size()) return false;
  if (!state.match) return Fail(ErrorCode::kOutOfMemory, "PCRE2: no memory for match data");
  const auto fail = [this](int code) {
    return Fail(ErrorCode::kInternal,
                fmt::format("splitting text at byte {}: PCRE2: {}", begin_, Pcre2Message(code)));
  };
  // Most families have one stage, which covers the text: without the detour below it is a tenth
  // faster.
  if (const CompiledStage& only = state.program->stages.front();
      only.covers && state.levels.size() == 1) {
    const int count = state.Match(only, begin_, begin_, state.text.size());
    if (count < 1) return fail(count);
    end_ = begin_ + pcre2_get_ovector_pointer(state.match.get())[1];
    return true;
  }
  // The last stage that has text left cuts a piece off it, which goes through the stages after it.
  while (state.levels[state.depth].at == state.levels[state.depth].end) --state.depth;
  while (true) {
    State::Level& level = state.levels[state.depth];
    const std::size_t begin = level.at;
    if (const int error = state.Advance(state.depth); error != 0) return fail(error);
    if (state.depth + 1 == state.levels.size()) {
      end_ = level.at;
      return true;
    }
    state.levels[++state.depth] = {begin, level.at, begin, begin};
  }
}

}  // namespace tilewright
