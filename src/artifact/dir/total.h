#pragma once

#include <algorithm>
#include <cstdint>

namespace tilewright {

/// How a total shares its 64-bit word with what guards it: from the lowest bit, the value (two's
/// complement), the number of surveys (8 bits), and the number of changes, both modulo their size.
/// A survey counts everything and sets the value, but only if the word is what it was before the
/// survey began; any change in between, even one followed by its opposite, gives a different word.
/// A removal is subtracted only if no survey ended since before the removal, because that survey
/// may not have counted the file any more.
///
/// A total that overflows its bits would be too small, and caps would be exceeded. So it saturates
/// at Max() and stays there until a survey has counted again.
class TotalFormat {
 public:
  explicit constexpr TotalFormat(int value_bits) : value_bits_(value_bits) {}

  /// "This, or more."
  constexpr std::int64_t Max() const { return (std::int64_t{1} << (value_bits_ - 1)) - 1; }

  constexpr std::int64_t Value(std::uint64_t word) const {
    return static_cast<std::int64_t>(word << (64 - value_bits_)) >> (64 - value_bits_);
  }
  /// `amount`: at most 2^62 in size.
  constexpr std::uint64_t Changed(std::uint64_t word, std::int64_t amount) const {
    const std::int64_t value = Value(word);
    return With(word + (std::uint64_t{1} << (value_bits_ + kSurveyBits)),
                value == Max() ? value : value + amount);
  }
  constexpr std::uint64_t Surveyed(std::uint64_t word, std::int64_t value) const {
    const std::uint64_t surveys = (kSurveyMask << value_bits_);
    const std::uint64_t next = (word + (std::uint64_t{1} << value_bits_)) & surveys;
    return With((word & ~surveys) | next, value);
  }
  constexpr bool SameSurvey(std::uint64_t a, std::uint64_t b) const {
    return (((a ^ b) >> value_bits_) & kSurveyMask) == 0;
  }

 private:
  static constexpr int kSurveyBits = 8;
  static constexpr std::uint64_t kSurveyMask = (std::uint64_t{1} << kSurveyBits) - 1;

  constexpr std::uint64_t With(std::uint64_t word, std::int64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << value_bits_) - 1;
    const std::int64_t held = std::clamp(value, -Max() - 1, Max());
    return (word & ~mask) | (static_cast<std::uint64_t>(held) & mask);
  }

  int value_bits_;
};

inline constexpr TotalFormat kEntriesFormat{28};  ///< up to 134 million, 2^28 changes
inline constexpr TotalFormat kBytesFormat{46};    ///< up to 32 TiB, 1,024 changes

}  // namespace tilewright
