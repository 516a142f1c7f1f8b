#include "model/tokenizer/scored_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace tilewright {

Result<ScoredPieces> ScoredPieces::Create(const Vocabulary& vocabulary,
                                          std::span<const float> scores) {
  ScoredPieces pieces;
  if (Status status = pieces.AddRanks(vocabulary, scores); !status)
    return Fail(std::move(status.error()));
  if (Status status = pieces.AddBytes(vocabulary); !status) return Fail(std::move(status.error()));
  pieces.AddJoins(vocabulary);
  return pieces;
}

Status ScoredPieces::AddRanks(const Vocabulary& vocabulary, std::span<const float> scores) {
  const auto count = static_cast<std::size_t>(vocabulary.size());
  if (scores.size() != count) {
    return Fail(ErrorCode::kCorrupt, fmt::format("tokenizer.ggml.scores: {} entries for {} tokens",
                                                 scores.size(), count));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isnan(scores[i])) {
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("tokenizer.ggml.scores[{}] = nan: not a number", i));
    }
  }
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  ranks_.resize(count);
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++rank;
    ranks_[order[i]] = rank;
  }
  return {};
}

Status ScoredPieces::AddBytes(const Vocabulary& vocabulary) {
  for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const std::string spelled = fmt::format("<0x{:02X}>", byte);
    const char itself = static_cast<char>(byte);
    TokenId& id = byte_tokens_[byte];
    id = vocabulary.Find(spelled);
    if (id == kNoToken) id = vocabulary.Find({&itself, 1});
    if (id == kNoToken) {
      return Fail(
          ErrorCode::kCorrupt,
          fmt::format("tokenizer.ggml.tokens: there is no token '{}' for the byte {}, so that text "
                      "with characters outside of the vocabulary cannot be encoded",
                      spelled, byte));
    }
  }
  return {};
}

std::uint32_t ScoredPieces::JoinBit(std::string_view left, std::string_view right) {
  // A character has at most four bytes.
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  std::memcpy(&first, left.data(), left.size());
  std::memcpy(&second, right.data(), right.size());
  const std::uint64_t both = (std::uint64_t{first} << 32) | second;
  const std::uint64_t mixed = (both ^ (both >> 29)) * 0x9e3779b97f4a7c15u;
  return static_cast<std::uint32_t>(mixed >> (64 - kJoinBits));
}

void ScoredPieces::AddJoins(const Vocabulary& vocabulary) {
  joins_.assign((std::size_t{1} << kJoinBits) / 64, 0);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    std::string_view rest = vocabulary.text(id);
    std::string_view left = LeadingCharacter(rest);
    rest.remove_prefix(left.size());
    while (!rest.empty()) {
      const std::string_view right = LeadingCharacter(rest);
      const std::uint32_t bit = JoinBit(left, right);
      joins_[bit / 64] |= std::uint64_t{1} << (bit % 64);
      left = right;
      rest.remove_prefix(right.size());
    }
  }
}

}  // namespace tilewright
