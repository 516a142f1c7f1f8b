#pragma once

#include <cstdint>

namespace tilewright {

/// How a total shares its 64-bit word with what guards it: from the lowest bit the value (two's
/// complement), the number of surveys (8 bits), and the number of changes, both modulo their size.
/// A survey counts everything and sets the value, but only if the word is still what it was before
/// the survey began: any change in between, also one and its opposite, leaves another word. And who
/// removes something takes it off only if no survey ended since before the removal, for that survey
/// may have missed it already.
class TotalFormat {
 public:
  explicit constexpr TotalFormat(int value_bits) : value_bits_(value_bits) {}

  constexpr std::int64_t Value(std::uint64_t word) const {
    return static_cast<std::int64_t>(word << (64 - value_bits_)) >> (64 - value_bits_);
  }
  constexpr std::uint64_t Changed(std::uint64_t word, std::int64_t amount) const {
    return With(word + (std::uint64_t{1} << (value_bits_ + kSurveyBits)), Value(word) + amount);
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
    return (word & ~mask) | (static_cast<std::uint64_t>(value) & mask);
  }

  int value_bits_;
};

inline constexpr TotalFormat kEntriesFormat{28};  ///< 134 million, 2^28 changes
inline constexpr TotalFormat kBytesFormat{46};    ///< 32 TiB, 1,024 changes

}  // namespace tilewright
