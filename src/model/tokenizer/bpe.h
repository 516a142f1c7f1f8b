#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/tokenizer/vocabulary.h"

namespace tilewright {

/// Merges the bytes of one word into tokens, the pair with the lowest rank first, the leftmost
/// among equals, until no pair merges. Holds scratch memory that is reused from word to word: one
/// thread at a time.
class WordEncoder {
 public:
  explicit WordEncoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  /// Appends the tokens of `word`. Bytes without a token are dropped.
  /// Cost: words up to kShortWord bytes by scanning for the best pair, O(n^2) with a tiny constant;
  /// longer ones O(n log n).
  void Encode(std::string_view word, std::vector<TokenId>& out);

  static constexpr std::size_t kShortWord = 40;

 private:
  struct Symbol {
    TokenId id;  // kNoToken: a byte without a token
    std::int32_t previous;
    std::int32_t next;  // -1: the last; kMerged: this symbol is part of the one before
  };
  void EncodeShort(std::string_view word, std::vector<TokenId>& out);
  void EncodeLong(std::string_view word, std::vector<TokenId>& out);
  /// The merge of the symbol at `left` with the one after it.
  Merge MergeAt(std::int32_t left) const;

  const Vocabulary& vocabulary_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t>
      heap_;  // rank of the pair above, position of its left symbol below: the smallest goes first
};

}  // namespace tilewright
