#include "core/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace tilewright {
namespace {

static_assert(F16ToF32(0x3c00) == 1.0f && F32ToF16(65504.0f) == 0x7bff &&
              E4M3ToF32(0x7e) == 448.0f);

/// Value of a float with `exponent_bits` and `mantissa_bits`, from the definition, in f64.
double ByDefinition(std::uint32_t code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
  const double sign = code >> (exponent_bits + mantissa_bits) & 1 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

TEST(NumericTest, EveryF16CodeDecodesToItsDefinitionAndBack) {
  for (std::uint32_t code = 0; code <= 0xffff; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const float value = F16ToF32(half);
    if ((code & 0x7c00) != 0x7c00) {
      ASSERT_EQ(static_cast<double>(value), ByDefinition(code, 5, 10)) << code;
      ASSERT_EQ(F32ToF16(value), half);
    } else if ((code & 0x3ff) == 0) {
      ASSERT_TRUE(std::isinf(value) && std::signbit(value) == ((code >> 15) != 0));
      ASSERT_EQ(F32ToF16(value), half);
    } else {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(F32ToF16(value), half | 0x200) << code;
    }
  }
}

TEST(NumericTest, EveryBF16AndE4M3CodeSurvivesTheRoundTrip) {
  for (std::uint32_t code = 0; code <= 0xffff; ++code) {
    const auto narrow = static_cast<std::uint16_t>(code);
    const float value = BF16ToF32(narrow);
    if (std::isnan(value)) {
      ASSERT_EQ(F32ToBF16(value), narrow | 0x40);
    } else {
      ASSERT_EQ(F32ToBF16(value), narrow);
    }
  }
  for (int code = 0; code < 256; ++code) {
    const float value = E4M3ToF32(static_cast<std::uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      ASSERT_TRUE(std::isnan(value));
    } else {
      ASSERT_EQ(static_cast<double>(value), ByDefinition(static_cast<std::uint32_t>(code), 4, 3))
          << code;
    }
    ASSERT_EQ(F32ToE4M3(value), code);
  }
}

/// Between every two neighbours a < b of a format: just below the middle goes to a, just above to
/// b, the middle to the even code.
template <class Decode, class Encode>
void CheckRounding(std::uint32_t largest_code, Decode decode, Encode encode) {
  for (std::uint32_t code = 0; code < largest_code; ++code) {
    const float a = decode(code), b = decode(code + 1);
    const auto middle = static_cast<float>((static_cast<double>(a) + static_cast<double>(b)) / 2);
    if (static_cast<double>(middle) * 2 != static_cast<double>(a) + static_cast<double>(b))
      continue;
    ASSERT_EQ(encode(middle), code % 2 == 0 ? code : code + 1) << "middle above code " << code;
    ASSERT_EQ(encode(std::nextafterf(middle, a)), code) << "below the middle above code " << code;
    ASSERT_EQ(encode(std::nextafterf(middle, b)), code + 1)
        << "above the middle above code " << code;
  }
}

TEST(NumericTest, ConversionsRoundToNearestEven) {
  CheckRounding(
      0x7bff, [](std::uint32_t c) { return F16ToF32(static_cast<std::uint16_t>(c)); },
      [](float v) { return std::uint32_t{F32ToF16(v)}; });
  CheckRounding(
      0x7f7f, [](std::uint32_t c) { return BF16ToF32(static_cast<std::uint16_t>(c)); },
      [](float v) { return std::uint32_t{F32ToBF16(v)}; });
  CheckRounding(
      0x7e, [](std::uint32_t c) { return E4M3ToF32(static_cast<std::uint8_t>(c)); },
      [](float v) { return std::uint32_t{F32ToE4M3(v)}; });
}

TEST(NumericTest, OverflowGoesToInfinityOrSaturates) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(F32ToF16(65519.99f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(-infinity), 0xfc00);
  EXPECT_EQ(F32ToBF16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(F32ToE4M3(449.0f), 0x7e);
  EXPECT_EQ(F32ToE4M3(-infinity), 0xfe);
  EXPECT_EQ(F32ToF16(-0.0f), 0x8000);
  EXPECT_EQ(F32ToE4M3(-0.0f), 0x80);
  EXPECT_EQ(F32ToF16(0x1p-26f), 0);
  EXPECT_EQ(F32ToF16(1e-45f), 0);
}

}  // namespace
}  // namespace tilewright
