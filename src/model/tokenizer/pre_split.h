#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "model/tokenizer/pre_split_families.h"
#include "tilewright/result.h"

namespace tilewright {

/// Splits text into the words within which merges happen, as the vocabulary's pre-tokenizer defines
/// them: by a sequence of regular expressions, run by PCRE2. Character classes are those of Unicode
/// 15.1, whatever version PCRE2 has (14 or later), and white space is the property White_Space, as
/// in llama.cpp.
class PreSplitter {
 public:
  using Family = PreSplitFamily;

  struct Options {
    bool jit = true;  ///< if off, or forbidden by the system: PCRE2's interpreter
  };

  /// `pre` is the value of tokenizer.ggml.pre. kUnsupported for an unknown one, listing the known
  /// ones.
  static Result<PreSplitter> Create(std::string_view pre, Options options);
  static Result<PreSplitter> Create(std::string_view pre) { return Create(pre, Options()); }

  PreSplitter(PreSplitter&&) noexcept;
  PreSplitter& operator=(PreSplitter&&) noexcept;
  ~PreSplitter();

  const Family& family() const { return *family_; }

  /// Iterates over the words of a text, which must be well-formed UTF-8. Text and splitter must
  /// outlive the cursor. One thread per cursor; any number of cursors.
  class Cursor {
   public:
    Cursor(const PreSplitter& splitter, std::string_view text);
    ~Cursor();
    Cursor(const Cursor&) = delete;
    Cursor& operator=(const Cursor&) = delete;

    /// Moves to the next word, text[begin(), end()). False at the end of the text. The words cover
    /// the text without gaps. Error: kInternal with PCRE2's message (out of memory is the one known
    /// cause).
    Result<bool> Next();
    std::size_t begin() const { return begin_; }
    std::size_t end() const { return end_; }

   private:
    struct State;
    std::unique_ptr<State> state_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
  };

 private:
  struct Program;
  PreSplitter(const Family* family, std::unique_ptr<const Program> program);
  const Family* family_;
  std::unique_ptr<const Program> program_;
};

}  // namespace tilewright
