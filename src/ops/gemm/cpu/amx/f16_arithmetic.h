#pragma once

#include <cstdint>

#include "core/numeric.h"

/// What AVX512-FP16 computes of each word, for processors without it: tests only.

namespace tilewright::gemm_int8 {
namespace {

/// To nearest even, in one rounding. By way of a float that is odd where it is not exact, so that no tie of f16
/// comes of it.
inline std::uint16_t RoundToF16(double exact) {
  auto value = static_cast<float>(exact);
  if (const double back = value; back != exact && exact == exact) {
    const bool beyond = (back < 0 ? -back : back) > (exact < 0 ? -exact : exact);
    value = F32FromBits((BitsOfF32(value) - (beyond ? 1u : 0u)) | 1u);
  }
  return F32ToF16(value);
}
inline std::uint16_t MulF16(std::uint16_t a, std::uint16_t b) {
  return RoundToF16(static_cast<double>(F16ToF32(a)) * F16ToF32(b));
}
inline std::uint16_t SubF16(std::uint16_t a, std::uint16_t b) {
  return RoundToF16(static_cast<double>(F16ToF32(a)) - F16ToF32(b));
}
/// The double is exact for integers `a` below 2^12, times and plus what is below 2^15.
inline std::uint16_t FmaF16(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  return RoundToF16(static_cast<double>(F16ToF32(a)) * F16ToF32(b) + F16ToF32(c));
}

/// of(word of x, of each other) for all 32 words of vectors of `I`.
template <class Function, class I, class... Is>
I EachWord(Function of, const I& x, const Is&... others) {
  constexpr int kWords = sizeof(I) / sizeof(std::uint16_t);
  const auto word = [](const I& from, int i) {
    std::uint16_t words[kWords];
    __builtin_memcpy(words, &from, sizeof words);
    return words[i];
  };
  std::uint16_t result[kWords];
  for (int i = 0; i < kWords; ++i)
    result[i] = static_cast<std::uint16_t>(of(word(x, i), word(others, i)...));
  I out;
  __builtin_memcpy(&out, result, sizeof out);
  return out;
}

}  // namespace
}  // namespace tilewright::gemm_int8
