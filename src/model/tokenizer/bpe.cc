#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <functional>

namespace tilewright {
namespace {
constexpr std::int32_t kEnd = -1;
constexpr std::int32_t kMerged = -2;
}  // namespace

void WordEncoder::Encode(std::string_view word, std::vector<TokenId>& out) {
  if (word.size() <= kShortWord) {
    EncodeShort(word, out);
  } else {
    EncodeLong(word, out);
  }
}

void WordEncoder::EncodeShort(std::string_view word, std::vector<TokenId>& out) {
  const auto bytes = vocabulary_.byte_tokens();
  const MergeTable& merges = vocabulary_.merges();
  std::array<TokenId, kShortWord> ids;
  std::array<Merge, kShortWord> pairs;  // pairs[i]: ids[i] with ids[i + 1]
  std::size_t count = 0;
  for (const char byte : word) ids[count++] = bytes[static_cast<std::uint8_t>(byte)];
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = merges.Find(ids[i], ids[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (!pairs[best].exists()) break;
    ids[best] = pairs[best].result;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      pairs[i - 1] = pairs[i];
    }
    --count;
    if (best > 0) pairs[best - 1] = merges.Find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = merges.Find(ids[best], ids[best + 1]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (ids[i] != kNoToken) out.push_back(ids[i]);
  }
}

Merge WordEncoder::MergeAt(std::int32_t left) const {
  if (left < 0) return {};
  const Symbol& symbol = symbols_[static_cast<std::size_t>(left)];
  if (symbol.next < 0) return {};
  return vocabulary_.merges().Find(symbol.id, symbols_[static_cast<std::size_t>(symbol.next)].id);
}

void WordEncoder::EncodeLong(std::string_view word, std::vector<TokenId>& out) {
  const auto bytes = vocabulary_.byte_tokens();
  const auto count = static_cast<std::int32_t>(word.size());
  symbols_.clear();
  symbols_.reserve(word.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const TokenId id = bytes[static_cast<std::uint8_t>(word[static_cast<std::size_t>(i)])];
    symbols_.push_back({id, i - 1, i + 1 < count ? i + 1 : kEnd});
  }
  heap_.clear();
  heap_.reserve(word.size());
  const auto append = [&](std::int32_t left) {
    const Merge merge = MergeAt(left);
    if (!merge.exists()) return false;
    heap_.push_back((static_cast<std::uint64_t>(merge.rank) << 32) |
                    static_cast<std::uint32_t>(left));
    return true;
  };
  const auto push = [&](std::int32_t left) {
    if (append(left)) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };
  for (std::int32_t i = 0; i < count; ++i) append(i);
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const std::uint64_t order = heap_.back();
    heap_.pop_back();
    const auto at = static_cast<std::int32_t>(order & 0xffffffff);
    // Entries are not removed when a neighbour merges. A rank belongs to one pair of tokens, so an
    // entry is stale if the pair that is here now has another rank.
    const Merge merge = MergeAt(at);
    if (!merge.exists() || merge.rank != order >> 32) continue;
    Symbol& left = symbols_[static_cast<std::size_t>(at)];
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    const std::int32_t after = right.next;
    right.next = kMerged;
    left.id = merge.result;
    left.next = after;
    if (after >= 0) symbols_[static_cast<std::size_t>(after)].previous = at;
    push(left.previous);
    push(at);
  }
  for (const Symbol& symbol : symbols_) {
    if (symbol.next != kMerged && symbol.id != kNoToken) out.push_back(symbol.id);
  }
}

}  // namespace tilewright
