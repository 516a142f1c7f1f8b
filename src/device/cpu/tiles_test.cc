#include "device/cpu/tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/random.h"
#include "device/cpu/tiles_test_util.h"
#include "tilewright/device_spec.h"

namespace tilewright {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Operands in whole tiles, and the sums before and after.
struct Operands {
  alignas(64) std::uint16_t a[kTileRows][32] = {}, b[kTileRows][32] = {};
  alignas(64) float c[kTileRows][kTileRows] = {};
  int rows = 16, k_pairs = 16, columns = 16;

  TileProduct Product() { return {rows, k_pairs, columns, a, b, &c[0][0]}; }
  void SetA(int m, int k, float value) { a[m][k] = F32ToBF16(value); }
  void SetB(int k, int n, float value) { b[k / 2][2 * n + k % 2] = F32ToBF16(value); }
  float A(int m, int k) const { return BF16ToF32(a[m][k]); }
  float B(int k, int n) const { return BF16ToF32(b[k / 2][2 * n + k % 2]); }
};

// Products by emulation; where the processor has the instructions, theirs are the same.
class TilesTest : public ::testing::Test {
 protected:
  static bool HasInstructions() {
    static const bool has = DetectCpuCappedAt(Isa::kAmx).Has(kFeatureAmxTile | kFeatureAmxBf16);
    return has;
  }

  static void ExpectSame(const Operands& x, const Operands& y) {
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileRows; ++n) {
        if (std::isnan(x.c[m][n]) && std::isnan(y.c[m][n])) continue;
        EXPECT_EQ(BitsOfF32(x.c[m][n]), BitsOfF32(y.c[m][n]))
            << "element " << m << ", " << n << ": " << x.c[m][n] << " and " << y.c[m][n];
      }
    }
  }

  static void Multiply(Operands& operands) {
    Operands instruction = operands;
    MultiplyBy<EmulatedTiles>(operands.Product());
    if (!HasInstructions()) return;
    MultiplyByInstruction(instruction.Product());
    ExpectSame(operands, instruction);
  }

  // c + a . b for one element; a and b alternate between even and odd k.
  static float Dot(float c, const std::vector<float>& a, const std::vector<float>& b) {
    Operands x;
    x.c[3][5] = c;
    for (std::size_t k = 0; k < a.size(); ++k) {
      x.SetA(3, static_cast<int>(k), a[k]);
      x.SetB(static_cast<int>(k), 5, b[k]);
    }
    Multiply(x);
    return x.c[3][5];
  }
};

TEST_F(TilesTest, SmallIntegersMultiplyExactlyInEveryShape) {
  Random random(17);
  for (int round = 0; round < 40; ++round) {
    Operands x;
    x.rows = 1 + static_cast<int>(random.Next() % 16);
    x.columns = 1 + static_cast<int>(random.Next() % 16);
    x.k_pairs = 1 + static_cast<int>(random.Next() % 16);
    // What lies outside the shape must not matter.
    for (int i = 0; i < kTileRows; ++i) {
      for (int k = 0; k < 32; ++k) {
        x.SetA(i, k, static_cast<float>(static_cast<int>(random.Next() % 33) - 16));
        x.SetB(k, i, static_cast<float>(static_cast<int>(random.Next() % 33) - 16));
      }
      for (int n = 0; n < kTileRows; ++n) x.c[i][n] = static_cast<float>(random.Next() % 1000);
    }
    const Operands before = x;
    Multiply(x);
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileRows; ++n) {
        auto expected = static_cast<double>(before.c[m][n]);
        if (m < x.rows && n < x.columns) {
          for (int k = 0; k < 2 * x.k_pairs; ++k)
            expected += static_cast<double>(x.A(m, k)) * x.B(k, n);
        }
        EXPECT_EQ(x.c[m][n], expected) << "element " << m << ", " << n;
      }
    }
  }
}

TEST_F(TilesTest, EvenAndOddKAreChainsOfTheirOwnThatAreAddedToTheSumLast) {
  // In one chain over ascending k, 1 would be lost in 2^24 before that is taken away again.
  EXPECT_EQ(Dot(0, {0x1p24f, 1, -0x1p24f}, {1, 1, 1}), 1);
  // Added to the sum one by one, each 1 would be lost; their sum is not.
  EXPECT_EQ(Dot(0x1p25f, {1, 1, 1, 1}, {1, 1, 1, 1}), 0x1p25f + 4);
  // The sum comes last: 2^24 and 1 round to 2^24 before -2^24 is added.
  EXPECT_EQ(Dot(-0x1p24f, {0x1p24f, 1}, {1, 1}), 0);
  // Within a chain: 1 is lost in 2^24, to nearest even.
  EXPECT_EQ(Dot(0, {0x1p24f, 0, 1, 0, -0x1p24f}, {1, 1, 1, 1, 1}), 0);
  EXPECT_EQ(Dot(0, {0x1p24f, 0, 3, 0, -0x1p24f}, {1, 1, 1, 1, 1}), 4);
}

TEST_F(TilesTest, AProductIsNotRoundedBeforeItIsAdded) {
  // 255 * 255 has 16 bits; below a sum of 2^16 it would take 17 in bf16, but all are kept.
  const float a = 255.0f / 128;
  EXPECT_EQ(Dot(0, {a, 0, -1}, {a, 1, 3.953125f}), a * a - 3.953125f);
}

TEST_F(TilesTest, SubnormalNumbersAreZeroWhereverTheyAppear) {
  const float tiny = 0x1p-130f, small = 0x1p-126f;
  EXPECT_EQ(Dot(0, {tiny}, {0x1p100f}), 0);           // an operand
  EXPECT_EQ(Dot(0, {0x1p100f}, {tiny}), 0);           // the other
  EXPECT_EQ(Dot(tiny, {0x1p-126f}, {1}), 0x1p-126f);  // the sum
  EXPECT_EQ(Dot(tiny, {0}, {0}), 0);
  EXPECT_EQ(Dot(0, {0x1p-70f}, {0x1p-60f}), 0);  // a product
  EXPECT_EQ(Dot(0, {0x1p-70f, 0x1p-70f}, {0x1p-60f, 0x1p-60f}), 0);
  EXPECT_EQ(Dot(0, {small, small}, {1.5f, -1}), 0);         // the sum of both chains
  EXPECT_EQ(Dot(-small, {small}, {1.5f}), 0);               // the result
  EXPECT_EQ(Dot(small, {small}, {1}), 0x1p-125f);           // none of these
  EXPECT_TRUE(std::signbit(Dot(-small, {small}, {0.5f})));  // -2^-126 + 0
}

TEST_F(TilesTest, WhatRoundsUpToTheLeastNormalNumberIsNotFlushed) {
  // 2^-126 - 2^-152 rounds to 2^-126 in 24 bits; 2^-126 - 2^-150 has 24 bits and is subnormal.
  EXPECT_EQ(Dot(0, {0x1p-126f, 0, -0x1p-76f}, {1, 1, 0x1p-76f}), 0x1p-126f);
  EXPECT_EQ(Dot(0, {0x1p-126f, 0, -0x1p-75f}, {1, 1, 0x1p-75f}), 0);
  EXPECT_EQ(Dot(0, {0x1p-126f, 0, -0x1p-75f}, {1, 1, 0x1p-76f}), 0x1p-126f);  // a tie
}

TEST_F(TilesTest, InfinitiesAndNaNsGoThrough) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Dot(1, {kInfinity, 1}, {2, 3}), kInfinity);
  EXPECT_EQ(Dot(1, {0x1p100f}, {0x1p100f}), kInfinity);
  EXPECT_TRUE(std::isnan(Dot(1, {kInfinity}, {0})));
  EXPECT_TRUE(std::isnan(Dot(1, {kInfinity, 1}, {-1, kInfinity})));
  EXPECT_TRUE(std::isnan(Dot(nan, {1}, {1})));
  EXPECT_TRUE(std::isnan(Dot(0, {1, nan}, {1, 0})));
}

// Numbers of all sizes, where sums cancel and vanish, against float64 and the instructions.
TEST_F(TilesTest, RandomProductsAreThoseOfFloat64AndOfTheInstructions) {
  Random random(23);
  for (int round = 0; round < 200; ++round) {
    const int spread = round % 4 == 0 ? 70 : round % 4;
    const auto number = [&] {
      const auto mantissa = static_cast<float>(static_cast<int>(random.Next() % 511) - 255);
      const int exponent = static_cast<int>(random.Next() % static_cast<unsigned>(spread + 1));
      return std::ldexp(mantissa, -exponent);
    };
    Operands x;
    for (int i = 0; i < kTileRows; ++i) {
      for (int k = 0; k < 32; ++k) x.SetA(i, k, number()), x.SetB(k, i, number());
      for (int n = 0; n < kTileRows; ++n) x.c[i][n] = number();
    }
    const Operands before = x;
    Multiply(x);
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileRows; ++n) {
        auto sum = static_cast<double>(before.c[m][n]), size = std::abs(sum);
        for (int k = 0; k < 32; ++k) {
          const double product = static_cast<double>(x.A(m, k)) * x.B(k, n);
          sum += product, size += std::abs(product);
        }
        EXPECT_NEAR(x.c[m][n], sum, size * 18 * 0x1p-24);  // as many roundings as a chain has
      }
    }
  }
}

// Bits at random, subnormal numbers, infinities and NaNs among them: only the instructions know.
TEST_F(TilesTest, TheEmulationOfAnyBitsIsThatOfTheInstructions) {
  if (!HasInstructions()) GTEST_SKIP() << "no AMX";
  Random random(29);
  for (int round = 0; round < 2000; ++round) {
    Operands x;
    // Exponents around one of each operand, so that products meet the sum at every magnitude.
    const std::uint32_t a_base = random.Next() % 256, b_base = random.Next() % 256;
    const std::uint32_t c_base = (a_base + b_base + 256 - 127) % 256;
    const auto bits = [&](std::uint32_t base) {
      const std::uint32_t exponent = (base + random.Next() % 5) % 256;
      return (static_cast<std::uint32_t>(random.Next()) & 0x807fffffu) | exponent << 23;
    };
    for (int i = 0; i < kTileRows; ++i) {
      for (int k = 0; k < 32; ++k) {
        x.a[i][k] = static_cast<std::uint16_t>(bits(a_base) >> 16);
        x.b[i][k] = static_cast<std::uint16_t>(bits(b_base) >> 16);
      }
      for (int n = 0; n < kTileRows; ++n) x.c[i][n] = F32FromBits(bits(c_base));
    }
    Multiply(x);
  }
}

// Every shape of int8 operands, -128 among them, on sums so large that some pass the end of int32;
// what lies outside the shape is neither read nor written.
TEST_F(TilesTest, Int8ProductsAreExactAndWrapInEveryShape) {
  const bool has = DetectCpuCappedAt(Isa::kAmx).Has(kFeatureAmxTile | kFeatureAmxInt8);
  Random random(31);
  int wrapped = 0;
  for (int round = 0; round < 200; ++round) {
    alignas(64) std::int8_t a[kTileRows][64], b[kTileRows][64];
    alignas(64) std::int32_t before[kTileRows][kTileRows], c[kTileRows][kTileRows];
    for (int i = 0; i < kTileRows; ++i) {
      for (int k = 0; k < 64; ++k) {
        a[i][k] = round % 8 == 0 ? std::int8_t{-128} : static_cast<std::int8_t>(random.Next());
        b[i][k] = round % 16 == 0 ? std::int8_t{-128} : static_cast<std::int8_t>(random.Next());
      }
      for (int n = 0; n < kTileRows; ++n) {
        const std::uint64_t bits = random.Next();
        before[i][n] = round % 2 == 0 ? std::numeric_limits<std::int32_t>::max() -
                                            static_cast<std::int32_t>(bits % 4096)
                                      : static_cast<std::int32_t>(bits);
      }
    }
    std::memcpy(c, before, sizeof c);
    TileProduct product{.a = a, .b = b, .c = c, .int8 = true};
    product.rows = 1 + static_cast<int>(random.Next() % 16);
    product.k_words = 1 + static_cast<int>(random.Next() % 16);
    product.columns = 1 + static_cast<int>(random.Next() % 16);
    MultiplyBy<EmulatedTiles>(product);
    for (int m = 0; m < kTileRows; ++m) {
      for (int n = 0; n < kTileRows; ++n) {
        std::int64_t sum = before[m][n];
        if (m < product.rows && n < product.columns) {
          for (int k = 0; k < 4 * product.k_words; ++k) sum += a[m][k] * b[k / 4][4 * n + k % 4];
        }
        wrapped += sum != static_cast<std::int32_t>(sum) ? 1 : 0;
        EXPECT_EQ(c[m][n], static_cast<std::int32_t>(sum)) << "element " << m << ", " << n;
      }
    }
    if (!has) continue;
    alignas(64) std::int32_t by_instruction[kTileRows][kTileRows];
    std::memcpy(by_instruction, before, sizeof by_instruction);
    product.c = by_instruction;
    MultiplyByInstruction(product);
    EXPECT_EQ(std::memcmp(by_instruction, c, sizeof c), 0) << "round " << round;
  }
  EXPECT_GT(wrapped, 0);
}

}  // namespace
}  // namespace tilewright
