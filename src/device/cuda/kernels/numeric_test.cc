#include "core/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "core/random.h"
#include "device/cuda/kernels/numeric.cuh"

// The host half of the device header, which tests of kernels compute with, against core/numeric.h.

namespace tilewright {
namespace {

void ExpectSame(float got, float want, std::uint32_t code) {
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got)) << code;
  } else {
    ASSERT_EQ(BitsOfF32(got), BitsOfF32(want)) << code;
  }
}

TEST(KernelNumericTest, EveryNarrowCodeHasTheValueOfTheHostLibrary) {
  for (std::uint32_t code = 0; code <= 0xffff; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    ExpectSame(tw::F16ToF32(bits), F16ToF32(bits), code);
    ExpectSame(tw::BF16ToF32(bits), BF16ToF32(bits), code);
    const std::uint32_t pair = code << 16 | (code ^ 0xffffu);
    ExpectSame(tw::HighToF32<tw::Type::kF16>(pair), F16ToF32(bits), code);
    ExpectSame(tw::LowToF32<tw::Type::kBF16>(pair),
               BF16ToF32(static_cast<std::uint16_t>(code ^ 0xffffu)), code);
  }
  for (std::uint32_t code = 0; code <= 0xff; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    ExpectSame(tw::E4M3ToF32(bits), E4M3ToF32(bits), code);
  }
}

TEST(KernelNumericTest, RoundingIsThatOfTheHostLibraryExceptTheBitsOfNan) {
  Random random(3);
  for (int i = 0; i < 2000000; ++i) {
    // Every exponent; half of them exactly between two neighbours of a narrow format.
    auto bits = static_cast<std::uint32_t>(random.Next());
    if (i % 2 != 0) bits = (bits & 0xfffff000u) | (i % 4 == 1 ? 0x0u : 0x1u);
    const float value = F32FromBits(bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(F16ToF32(tw::F32ToF16(value))));
      ASSERT_TRUE(std::isnan(BF16ToF32(tw::F32ToBF16(value))));
      ASSERT_TRUE(std::isnan(E4M3ToF32(tw::F32ToE4M3(value))));
      continue;
    }
    ASSERT_EQ(tw::F32ToF16(value), F32ToF16(value)) << bits;
    ASSERT_EQ(tw::F32ToBF16(value), F32ToBF16(value)) << bits;
    ASSERT_EQ(tw::F32ToE4M3(value), F32ToE4M3(value)) << bits;
    ASSERT_EQ(tw::PackF16(value, 1.0f), 0x3c000000u | F32ToF16(value));
  }
}

TEST(KernelNumericTest, BothHalvesOfAWordOfF16AreComputedWith) {
  Random random(5);
  for (int i = 0; i < 100000; ++i) {
    const auto a = static_cast<std::uint32_t>(random.Next()),
               b = static_cast<std::uint32_t>(random.Next());
    const std::uint32_t product = tw::MulF16x2(a, b), sum = tw::AddF16x2(a, b);
    const std::uint32_t both = tw::FmaF16x2(a, b, 0x3c00bc00u);  // 1 and -1
    const std::uint32_t by_low = tw::MulF16x2ByHalf<0>(a, b), by_high = tw::MulF16x2ByHalf<1>(a, b);
    for (const int shift : {0, 16}) {
      const auto half = [&](std::uint32_t word) {
        return static_cast<std::uint16_t>(word >> shift);
      };
      const auto value = [&](std::uint32_t word) { return double{F16ToF32(half(word))}; };
      const auto expect = [&](std::uint32_t got, double want) {
        const std::uint16_t rounded = F32ToF16(static_cast<float>(want));
        if (std::isnan(F16ToF32(rounded))) {
          ASSERT_TRUE(std::isnan(F16ToF32(half(got))));
        } else {
          ASSERT_EQ(half(got), rounded) << a << " " << b;
        }
      };
      expect(product, value(a) * value(b));
      expect(by_low, value(a) * double{F16ToF32(static_cast<std::uint16_t>(b))});
      expect(by_high, value(a) * double{F16ToF32(static_cast<std::uint16_t>(b >> 16))});
      expect(sum, value(a) + value(b));
      expect(both, value(a) * value(b) + (shift == 0 ? -1.0 : 1.0));
    }
  }
}

TEST(KernelNumericTest, TheLargerMagnitudeOfEachHalfIsFound) {
  // 1 and -3 beside -2 and 0.5; a NaN beside a number.
  EXPECT_EQ(tw::MaxMagnitudeBF16x2(0x3f80c040u, 0xc0003f00u) & 0x7fff7fffu, 0x40004040u);
  EXPECT_EQ(tw::MaxMagnitudeBF16x2(0x7fc03f80u, 0x3f80ffc0u) & 0x7fff7fffu, 0x3f803f80u);
}

TEST(KernelNumericTest, BytesOfTwoWordsArePickedByNibbles) {
  EXPECT_EQ(tw::PermuteBytes(0x33221100u, 0x77665544u, 0x3210u), 0x33221100u);
  EXPECT_EQ(tw::PermuteBytes(0x33221100u, 0x77665544u, 0x7654u), 0x77665544u);
  EXPECT_EQ(tw::PermuteBytes(0x33221100u, 0x77665544u, 0x5410u), 0x55441100u);
  EXPECT_EQ(tw::PermuteBytes(0x33221100u, 0x77665544u, 0x7632u), 0x77663322u);
  EXPECT_EQ(tw::AndOr(0xffff0000u, 0x0ff00ff0u, 0x00000003u), 0x0ff00003u);
  EXPECT_EQ(tw::SelectBits(0xffff0000u, 0x12345678u, 0x9abcdef0u), 0x1234def0u);
  EXPECT_EQ(tw::PermuteSignedBytes(0x33221180u, 0x77665544u, 0xf9801u), 0x00ff8011u);
}

TEST(KernelNumericTest, PairsOfBF16AreMultipliedAndAddedEachByItself) {
  // {3, -2} * {1, 5} + {-128, 4}
  EXPECT_EQ(tw::FmaBF16x2(tw::PackBF16(3, -2), tw::PackBF16(1, 5), tw::PackBF16(-128, 4)),
            tw::PackBF16(-125, -6));
}

TEST(KernelNumericTest, AFunnelShiftTakesTheMiddleOfTwoWords) {
  EXPECT_EQ(tw::FunnelRight(0x44332211u, 0x88776655u, 16), 0x66554433u);
  EXPECT_EQ(tw::FunnelRight(0x44332211u, 0x88776655u, 0), 0x44332211u);
}

}  // namespace
}  // namespace tilewright
