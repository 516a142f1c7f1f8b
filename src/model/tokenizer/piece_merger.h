#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer/scored_pieces.h"
#include "model/tokenizer/vocabulary.h"

namespace tilewright {

/// Merges the characters of a text into tokens: of all neighbours that form a token together, those
/// of the token with the highest score, the leftmost among equals, until no two form one. A
/// character that remains and is no token becomes the tokens of its bytes. Holds scratch memory
/// that is reused from text to text: one thread at a time.
class PieceMerger {
 public:
  PieceMerger(const Vocabulary& vocabulary, const ScoredPieces& pieces)
      : vocabulary_(vocabulary), pieces_(pieces) {}

  /// Appends the tokens of `text`. Cost: O(n log n) in the length of the longest stretch that the
  /// vocabulary might merge, usually a word, and linear in that of the text.
  void Encode(std::string_view text, std::vector<TokenId>& out);

 private:
  struct Symbol {
    std::uint32_t begin;
    std::uint32_t size;
    std::int32_t previous;
    std::int32_t next;
    TokenId id;    // kNoToken: a character that was not merged
    TokenId pair;  // that this symbol and the next one form, or kNoToken
  };

  /// Encodes a stretch of text in which any neighbours may merge.
  void EncodeStretch(std::string_view text, std::vector<TokenId>& out);
  void AppendCharacter(std::string_view character, std::vector<TokenId>& out) const;
  void Cut(std::string_view text);
  /// Finds the token of the symbol at `left` and the next; appends it to the heap, which may then
  /// not be one. Returns whether there is such a token.
  bool AddPair(std::string_view text, std::int32_t left);
  void PushPair(std::string_view text, std::int32_t left);
  void Merge(std::string_view text, std::int32_t at);

  const Vocabulary& vocabulary_;
  const ScoredPieces& pieces_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t>
      heap_;  // rank of the pair above, position of its left symbol below: the smallest goes first
};

}  // namespace tilewright
