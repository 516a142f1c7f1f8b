#include "model/tokenizer/piece_merger.h"

#include <algorithm>
#include <functional>

namespace tilewright {
namespace {
constexpr std::int32_t kEnd = -1;
}  // namespace

void PieceMerger::Encode(std::string_view text, std::vector<TokenId>& out) {
  std::size_t begin = 0;
  std::size_t end = 0;
  while (end < text.size()) {
    const std::string_view last = LeadingCharacter(text.substr(end));
    end += last.size();
    if (end < text.size() && pieces_.MayJoin(last, LeadingCharacter(text.substr(end)))) continue;
    EncodeStretch(text.substr(begin, end - begin), out);
    begin = end;
  }
}

void PieceMerger::AppendCharacter(std::string_view character, std::vector<TokenId>& out) const {
  const TokenId id = vocabulary_.Find(character);
  if (id != kNoToken) {
    out.push_back(id);
    return;
  }
  for (const char byte : character)
    out.push_back(pieces_.byte_token(static_cast<std::uint8_t>(byte)));
}

void PieceMerger::Cut(std::string_view text) {
  symbols_.clear();
  std::int32_t index = 0;
  for (std::size_t at = 0; at < text.size(); ++index) {
    const std::size_t size = LeadingCharacter(text.substr(at)).size();
    const std::int32_t next = at + size < text.size() ? index + 1 : kEnd;
    symbols_.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(size), index - 1,
                        next, kNoToken, kNoToken});
    at += size;
  }
}

bool PieceMerger::AddPair(std::string_view text, std::int32_t left) {
  if (left == kEnd) return false;
  Symbol& symbol = symbols_[static_cast<std::size_t>(left)];
  symbol.pair = kNoToken;
  if (symbol.next == kEnd) return false;
  const Symbol& right = symbols_[static_cast<std::size_t>(symbol.next)];
  symbol.pair = vocabulary_.Find(text.substr(symbol.begin, symbol.size + right.size));
  if (symbol.pair == kNoToken) return false;
  heap_.push_back((static_cast<std::uint64_t>(pieces_.rank(symbol.pair)) << 32) |
                  static_cast<std::uint32_t>(left));
  return true;
}

void PieceMerger::PushPair(std::string_view text, std::int32_t left) {
  if (AddPair(text, left)) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void PieceMerger::Merge(std::string_view text, std::int32_t at) {
  Symbol& left = symbols_[static_cast<std::size_t>(at)];
  Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
  left.id = left.pair;
  left.size += right.size;
  left.next = right.next;
  right.pair = kNoToken;
  if (left.next != kEnd) symbols_[static_cast<std::size_t>(left.next)].previous = at;
  PushPair(text, left.previous);
  PushPair(text, at);
}

void PieceMerger::EncodeStretch(std::string_view text, std::vector<TokenId>& out) {
  if (LeadingCharacter(text).size() == text.size()) {
    AppendCharacter(text, out);
    return;
  }
  Cut(text);
  heap_.clear();
  for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) AddPair(text, static_cast<std::int32_t>(i));
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const std::uint64_t order = heap_.back();
    heap_.pop_back();
    const auto at = static_cast<std::int32_t>(order & 0xffffffff);
    // Entries are not removed when a neighbour merges. One is stale if the pair that is here now
    // has another rank; a new pair with the same rank is due now as well.
    const TokenId pair = symbols_[static_cast<std::size_t>(at)].pair;
    if (pair != kNoToken && pieces_.rank(pair) == order >> 32) Merge(text, at);
  }
  for (std::int32_t i = 0; i != kEnd; i = symbols_[static_cast<std::size_t>(i)].next) {
    const Symbol& symbol = symbols_[static_cast<std::size_t>(i)];
    if (symbol.id != kNoToken) {
      out.push_back(symbol.id);
    } else {
      AppendCharacter(text.substr(symbol.begin, symbol.size), out);
    }
  }
}

}  // namespace tilewright
