#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tilewright {

/// One step of a pre-tokenizer: the matches of a regular expression become pieces, and so does what
/// lies between them.
struct PreSplitStage {
  std::string_view pattern;
  /// The matches leave no gap: the pattern matches something wherever it is tried.
  bool covers;
};

/// What a family of vocabularies has in common.
struct PreSplitFamily {
  std::string_view name;
  /// Each splits the pieces of the one before it; a piece is a text of its own, so neither the end
  /// of the text nor look-around sees its neighbours.
  std::span<const PreSplitStage> stages;
  /// A word that is a token is looked up without merges (llama.cpp: ignore_merges).
  bool whole_words_first;
  bool add_bos;  ///< if the file does not say
};

/// The family of this value of tokenizer.ggml.pre, or nullptr.
const PreSplitFamily* FindPreSplitFamily(std::string_view pre);

/// The values that FindPreSplitFamily knows, separated by commas.
std::string KnownPreSplits();

}  // namespace tilewright
