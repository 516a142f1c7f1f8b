#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/tokenizer/vocabulary.h"
#include "tilewright/result.h"

namespace tilewright {

/// The character at the front of non-empty `text`, whose length its first byte says; what follows
/// is not checked. Shorter if the text ends.
inline std::string_view LeadingCharacter(std::string_view text) {
  const auto lead = static_cast<std::uint8_t>(text.front());
  return text.substr(0, lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4);
}

/// What merging by score needs to know of a vocabulary. Const after Create; any number of threads.
class ScoredPieces {
 public:
  /// `scores`: one for each token. kCorrupt for another number of them, for one that is not a
  /// number, and for a byte without a token.
  static Result<ScoredPieces> Create(const Vocabulary& vocabulary, std::span<const float> scores);

  /// Tokens with a higher score have a lower rank; equal scores, equal ranks.
  std::uint32_t rank(TokenId id) const { return ranks_[static_cast<std::size_t>(id)]; }

  /// The token for a byte of a character that has none: "<0x41>", else the byte itself.
  TokenId byte_token(std::uint8_t byte) const { return byte_tokens_[byte]; }

  /// Whether some token might contain these two characters side by side. If not, no merge crosses
  /// from one to the other, and the text can be cut there: the work then stays within words. A
  /// bitmap of hashes, so that it sometimes says yes without reason, never no.
  bool MayJoin(std::string_view left, std::string_view right) const {
    const std::uint32_t bit = JoinBit(left, right);
    return (joins_[bit / 64] >> (bit % 64) & 1) != 0;
  }

 private:
  // 128 KiB. The vocabulary of Llama 2 sets 2 % of the bits, that of Gemma about 20 %.
  static constexpr int kJoinBits = 20;
  static std::uint32_t JoinBit(std::string_view left, std::string_view right);
  void AddJoins(const Vocabulary& vocabulary);
  Status AddRanks(const Vocabulary& vocabulary, std::span<const float> scores);
  Status AddBytes(const Vocabulary& vocabulary);

  std::vector<std::uint32_t> ranks_;
  std::array<TokenId, 256> byte_tokens_{};
  std::vector<std::uint64_t> joins_;
};

}  // namespace tilewright
