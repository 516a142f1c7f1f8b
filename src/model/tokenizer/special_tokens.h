#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer/vocabulary.h"

namespace tilewright {

/// Finds special tokens in raw text. Const after construction; views into the vocabulary, which
/// must outlive it.
class SpecialTokenFinder {
 public:
  /// A special token at text[begin, end).
  struct Match {
    std::size_t begin;
    std::size_t end;
    TokenId id;
  };

  /// All control, unknown and user-defined tokens, or with `only_user_defined` those alone.
  void Build(const Vocabulary& vocabulary, bool only_user_defined);

  /// The matches from left to right; they do not overlap. If tokens overlap in the text, the longer
  /// one wins, then the one with the lower id, then the one further left. O(text + length of
  /// overlapping matches).
  std::vector<Match> FindAll(std::string_view text) const;

 private:
  struct Entry {
    std::string_view text;
    TokenId id;
  };

  /// Appends every token that begins at text[at].
  void AppendMatchesAt(std::string_view text, std::size_t at, std::vector<Match>& out) const;
  static void KeepWinners(std::vector<Match>& cluster, std::vector<Match>& out);

  std::vector<Entry> entries_;  // sorted by text
  std::array<bool, 256> begins_{};
};

}  // namespace tilewright
