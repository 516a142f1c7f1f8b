#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/result.h"
#include "tilewright/tokenizer.h"

namespace tilewright {

/// A merge: the result of `left right`, and its rank.
struct Merge {
  std::uint32_t rank = 0xffffffff;  ///< lower goes first; all ones: the pair does not merge
  TokenId result = kNoToken;
  bool exists() const { return result != kNoToken; }
};

/// A hash table from pairs of tokens to their merge, with open addressing in one array: one cache
/// line per lookup. Const once filled.
class MergeTable {
 public:
  void Reserve(std::size_t merges);
  /// Keeps the earlier merge if a pair occurs twice, as llama.cpp does.
  void Insert(TokenId left, TokenId right, Merge merge);
  Merge Find(TokenId left, TokenId right) const {
    const std::uint64_t key = Key(left, right);
    for (std::size_t i = Home(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  // The key of (-1, -1), which is not a pair.
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static std::uint64_t Key(TokenId left, TokenId right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
  }
  std::size_t Home(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> shift_);
  }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  std::size_t mask_ = 1;
  int shift_ = 63;
};

/// The tokens of a vocabulary: their text in one block of memory, ids by text, merges by pair.
/// Const after Create.
class Vocabulary {
 public:
  /// Copies tokens and merges. Errors as Tokenizer::Create.
  static Result<Vocabulary> Create(const TokenizerSpec& spec);

  int size() const { return static_cast<int>(types_.size()); }
  bool Contains(TokenId id) const { return id >= 0 && id < size(); }
  std::string_view text(TokenId id) const {
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(arena_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }
  TokenType type(TokenId id) const { return types_[static_cast<std::size_t>(id)]; }
  void set_type(TokenId id, TokenType type) { types_[static_cast<std::size_t>(id)] = type; }
  /// The token of exactly this text, or kNoToken.
  TokenId Find(std::string_view text) const;
  const MergeTable& merges() const { return merges_; }
  /// For each byte the token that is just that byte, or kNoToken.
  std::span<const TokenId, 256> byte_tokens() const { return byte_tokens_; }
  std::size_t longest_token() const { return longest_token_; }

 private:
  struct Slot {
    // High bits of the hash, so that most lookups of absent texts read no text.
    std::uint32_t tag = 0;
    TokenId id = kNoToken;
  };

  Status AddTokens(const TokenizerSpec& spec);
  Status AddMerges(const TokenizerSpec& spec);
  void Prefetch(std::uint64_t hash) const {
    __builtin_prefetch(&slots_[static_cast<std::size_t>(hash) & (slots_.size() - 1)]);
  }
  /// The slot of `text`, or the empty one where it belongs.
  std::size_t Locate(std::string_view text, std::uint64_t hash) const;

  std::string arena_;
  std::vector<std::uint32_t> ends_;  // token i is arena_[ends_[i] .. ends_[i + 1])
  std::vector<TokenType> types_;
  std::vector<Slot> slots_;
  std::array<TokenId, 256> byte_tokens_{};
  std::size_t longest_token_ = 0;
  MergeTable merges_;
};

}  // namespace tilewright
