#include "model/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "model/tokenizer/byte_alphabet.h"

namespace tilewright {
namespace {

// Far above any real vocabulary; keeps sizes within 32 bits and the hash tables of a hostile file
// small.
constexpr std::size_t kMaxTokens = std::size_t{1} << 24;
constexpr std::size_t kMaxMerges = std::size_t{1} << 26;

std::uint64_t Mix(std::uint64_t value, std::uint64_t word) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(value ^ word) * 0x9e3779b97f4a7c15u;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t Hash(std::string_view text) {
  std::uint64_t hash = 0xd6e8feb86659fd93u + text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  std::uint64_t word;
  for (; left >= sizeof word; left -= sizeof word, at += sizeof word) {
    std::memcpy(&word, at, sizeof word);
    hash = Mix(hash, word);
  }
  word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  return Mix(hash, word);
}

/// The two parts of a merge whose lookup is pending.
struct MergeText {
  std::string_view left;
  std::string_view right;
  std::uint64_t left_hash;
  std::uint64_t right_hash;
};

bool IsJoined(std::string_view whole, std::string_view left, std::string_view right) {
  return whole.size() == left.size() + right.size() && whole.starts_with(left) &&
         whole.ends_with(right);
}

/// Makes a token fit for a message: without control characters, and shortened.
std::string Shown(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 40))
    shown.push_back(static_cast<unsigned char>(c) < 0x20 ? '?' : c);
  return shown + (text.size() > 40 ? "..." : "");
}

}  // namespace

void MergeTable::Reserve(std::size_t merges) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(merges + merges / 2, 2));
  slots_.assign(slots, Slot{});
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::Insert(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = Key(left, right);
  std::size_t i = Home(key);
  while (slots_[i].key != kEmpty) {
    if (slots_[i].key == key) return;
    i = (i + 1) & mask_;
  }
  slots_[i] = {key, merge};
}

Result<Vocabulary> Vocabulary::Create(const TokenizerSpec& spec) {
  Vocabulary vocabulary;
  if (Status status = vocabulary.AddTokens(spec); !status) return Fail(std::move(status.error()));
  if (Status status = vocabulary.AddMerges(spec); !status) return Fail(std::move(status.error()));
  return vocabulary;
}

std::size_t Vocabulary::Locate(std::string_view wanted, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  std::size_t i = static_cast<std::size_t>(hash) & mask;
  while (slots_[i].id != kNoToken && (slots_[i].tag != tag || text(slots_[i].id) != wanted))
    i = (i + 1) & mask;
  return i;
}

TokenId Vocabulary::Find(std::string_view wanted) const {
  if (wanted.size() > longest_token_) return kNoToken;
  return slots_[Locate(wanted, Hash(wanted))].id;
}

Status Vocabulary::AddTokens(const TokenizerSpec& spec) {
  const std::size_t count = spec.tokens.size();
  if (count == 0) return Fail(ErrorCode::kCorrupt, "tokenizer.ggml.tokens: no tokens");
  if (count > kMaxTokens) {
    return Fail(
        ErrorCode::kCorrupt,
        fmt::format("tokenizer.ggml.tokens: {} tokens; at most {} are allowed", count, kMaxTokens));
  }
  if (!spec.token_types.empty() && spec.token_types.size() != count) {
    return Fail(ErrorCode::kCorrupt,
                fmt::format("tokenizer.ggml.token_type: {} entries for {} tokens",
                            spec.token_types.size(), count));
  }
  std::size_t bytes = 0;
  for (const std::string_view token : spec.tokens) bytes += token.size() + (token.empty() ? 20 : 0);
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    return Fail(
        ErrorCode::kCorrupt,
        fmt::format("tokenizer.ggml.tokens: {} bytes of text; at most 4 GiB are allowed", bytes));
  }
  arena_.reserve(bytes);
  ends_.reserve(count + 1);
  ends_.push_back(0);
  types_.reserve(count);
  slots_.assign(std::bit_ceil(count * 2), Slot{});
  for (std::size_t i = 0; i < count; ++i) {
    // Files may hold empty tokens as padding; they must not be found in every text.
    const std::string_view token = spec.tokens[i];
    if (token.empty()) {
      fmt::format_to(std::back_inserter(arena_), "[EMPTY_{}]", i);
    } else {
      arena_.append(token);
    }
    ends_.push_back(static_cast<std::uint32_t>(arena_.size()));
    const std::int32_t type = spec.token_types.empty() ? 1 : spec.token_types[i];
    if (type < 0 || type > static_cast<std::int32_t>(TokenType::kByte)) {
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("tokenizer.ggml.token_type[{}] = {}: types are from 0 to {}", i, type,
                              static_cast<std::int32_t>(TokenType::kByte)));
    }
    types_.push_back(static_cast<TokenType>(type));
    const auto id = static_cast<TokenId>(i);
    const std::string_view stored = text(id);
    longest_token_ = std::max(longest_token_, stored.size());
    const std::uint64_t hash = Hash(stored);
    Slot& slot = slots_[Locate(stored, hash)];
    if (slot.id != kNoToken) {
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("tokenizer.ggml.tokens: tokens {} and {} are both '{}'", slot.id, id,
                              Shown(stored)));
    }
    slot = {static_cast<std::uint32_t>(hash >> 32), id};
  }
  for (std::size_t byte = 0; byte < 256; ++byte)
    byte_tokens_[byte] = Find(kByteSymbols[byte].view());
  return {};
}

Status Vocabulary::AddMerges(const TokenizerSpec& spec) {
  if (spec.merges.size() > kMaxMerges) {
    return Fail(ErrorCode::kCorrupt, fmt::format("tokenizer.ggml.merges: {} merges; at most {}",
                                                 spec.merges.size(), kMaxMerges));
  }
  merges_.Reserve(spec.merges.size());
  // Memory latency dominates, so texts are hashed and their slots prefetched some merges ahead of
  // the lookup.
  constexpr std::size_t kBlock = 32;
  std::array<MergeText, kBlock> block{};
  std::string joined;
  TokenId guess = 0;
  for (std::size_t first = 0; first < spec.merges.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, spec.merges.size() - first);
    for (std::size_t k = 0; k < count; ++k) {
      const std::string_view merge = spec.merges[first + k];
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size()) {
        return Fail(
            ErrorCode::kCorrupt,
            fmt::format("tokenizer.ggml.merges[{}] = '{}': not two tokens separated by a space",
                        first + k, Shown(merge)));
      }
      block[k].left = merge.substr(0, space);
      block[k].right = merge.substr(space + 1);
      block[k].left_hash = Hash(block[k].left);
      block[k].right_hash = Hash(block[k].right);
      Prefetch(block[k].left_hash);
      Prefetch(block[k].right_hash);
    }
    for (std::size_t k = 0; k < count; ++k) {
      const MergeText& merge = block[k];
      const TokenId left = slots_[Locate(merge.left, merge.left_hash)].id;
      const TokenId right = slots_[Locate(merge.right, merge.right_hash)].id;
      // Trained vocabularies number their tokens in the order of the merges, so the result is
      // usually the token after the last one, or that one again.
      TokenId result = kNoToken;
      for (const TokenId id : {guess + 1, guess}) {
        if (result == kNoToken && Contains(id) && IsJoined(text(id), merge.left, merge.right))
          result = id;
      }
      if (result == kNoToken) {
        joined.assign(merge.left).append(merge.right);
        result = Find(joined);
      }
      if (left == kNoToken || right == kNoToken || result == kNoToken) {
        joined.assign(merge.left).append(merge.right);
        const std::string_view missing = left == kNoToken    ? merge.left
                                         : right == kNoToken ? merge.right
                                                             : joined;
        return Fail(ErrorCode::kCorrupt,
                    fmt::format("tokenizer.ggml.merges[{}] = '{}': there is no token '{}'",
                                first + k, Shown(spec.merges[first + k]), Shown(missing)));
      }
      guess = result;
      merges_.Insert(left, right, {static_cast<std::uint32_t>(first + k), result});
    }
  }
  return {};
}

}  // namespace tilewright
