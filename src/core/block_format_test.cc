#include "core/block_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/numeric.h"
#include "core/random.h"
#include "core/test_util.h"

namespace tilewright {
namespace {

TEST(BlockFormatTest, Q4_0DecodesEveryCodeUnderEveryScale) {
  // All 65536 scales times all 16 codes in both nibbles, in f32, bit for bit.
  for (std::uint32_t d = 0; d <= 0xffff; ++d) {
    BlockQ4_0 block{static_cast<std::uint16_t>(d), {}};
    for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<std::uint8_t>(j | (15 - j) << 4);
    float got[32];
    ASSERT_TRUE(DecodeRow(DataType::kQ4_0, &block, 32, got));
    const float scale = F16ToF32(static_cast<std::uint16_t>(d));
    for (int j = 0; j < 16; ++j) {
      const float low = scale * static_cast<float>(j - 8),
                  high = scale * static_cast<float>(15 - j - 8);
      if (std::isnan(low)) {
        ASSERT_TRUE(std::isnan(got[j]));
        continue;
      }
      ASSERT_EQ(BitsOfF32(got[j]), BitsOfF32(low)) << "d " << d << " code " << j;
      if (!std::isnan(high)) {
        ASSERT_EQ(BitsOfF32(got[j + 16]), BitsOfF32(high)) << "d " << d << " code " << 15 - j;
      }
    }
  }
}

TEST(BlockFormatTest, Q4_1RoundsTheExactValueOnce) {
  Random random(11);
  for (int trial = 0; trial < 20000; ++trial) {
    BlockQ4_1 block{};
    block.d = static_cast<std::uint16_t>(random.Next() & 0xffff);
    block.m = static_cast<std::uint16_t>(random.Next() & 0xffff);
    const float d = F16ToF32(block.d), m = F16ToF32(block.m);
    if (!std::isfinite(d) || !std::isfinite(m)) continue;
    for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<std::uint8_t>(j | (15 - j) << 4);
    float got[32];
    double exact[32];
    ASSERT_TRUE(DecodeRow(DataType::kQ4_1, &block, 32, got));
    ASSERT_TRUE(DecodeRow(DataType::kQ4_1, &block, 32, exact));
    for (int j = 0; j < 32; ++j) {
      const int code = j < 16 ? j : 31 - j;
      ASSERT_EQ(exact[j], static_cast<double>(d) * code + static_cast<double>(m));
      ASSERT_EQ(got[j], static_cast<float>(exact[j]))
          << "d " << block.d << " m " << block.m << " code " << code;
    }
  }
}

TEST(BlockFormatTest, Q8_0DecodesEveryCodeUnderEveryScale) {
  for (std::uint32_t d = 0; d <= 0xffff; ++d) {
    const float scale = F16ToF32(static_cast<std::uint16_t>(d));
    if (!std::isfinite(scale)) continue;
    BlockQ8_0 blocks[8];
    for (int code = 0; code < 256; ++code) {
      blocks[code / 32].d = static_cast<std::uint16_t>(d);
      blocks[code / 32].qs[code % 32] = static_cast<std::int8_t>(code - 128);
    }
    float got[256];
    ASSERT_TRUE(DecodeRow(DataType::kQ8_0, blocks, 256, got));
    for (int code = 0; code < 256; ++code) {
      ASSERT_EQ(static_cast<double>(got[code]), static_cast<double>(scale) * (code - 128))
          << d << " " << code;
    }
  }
}

TEST(BlockFormatTest, Q6KPlacesEveryBitWhereTheFormatSaysAndIsExact) {
  // One value set at a time to each of its 64 codes; all others stay at code 0, which is -32.
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, s = i % 128 / 32, l = i % 32;
    for (int code = 0; code < 64; ++code) {
      BlockQ6_K block{};
      block.d = 0x3c00;
      for (auto& scale : block.scales) scale = 1;
      block.scales[i / 16] = -3;
      block.ql[64 * half + l + (s % 2 == 1 ? 32 : 0)] =
          static_cast<std::uint8_t>(s < 2 ? code & 15 : (code & 15) << 4);
      block.qh[32 * half + l] = static_cast<std::uint8_t>(code >> 4 << (2 * s));
      float got[256];
      ASSERT_TRUE(DecodeRow(DataType::kQ6_K, &block, 256, got));
      for (int j = 0; j < 256; ++j) {
        const int want = (j == i ? code - 32 : -32) * (j / 16 == i / 16 ? -3 : 1);
        ASSERT_EQ(got[j], static_cast<float>(want))
            << "value " << i << " code " << code << " at " << j;
      }
    }
  }
}

/// Writes the 6-bit scale and min of sub-block `s` where the format keeps them.
void PutScaleMin(BlockQ4_K& block, int s, int scale, int min) {
  const auto put = [&](int byte, int bits) {
    block.scales[byte] = static_cast<std::uint8_t>(block.scales[byte] | bits);
  };
  if (s < 4) {
    put(s, scale);
    put(s + 4, min);
    return;
  }
  put(s + 4, (scale & 15) | (min & 15) << 4);
  put(s - 4, scale >> 4 << 6);
  put(s, min >> 4 << 6);
}

TEST(BlockFormatTest, Q4KPlacesEveryBitWhereTheFormatSays) {
  // Each sub-block in turn gets every scale and every min; the others keep scale 1, min 2.
  for (int s = 0; s < 8; ++s) {
    for (int bits = 0; bits < 64; ++bits) {
      BlockQ4_K block{};
      block.d = 0x3c00;
      block.dmin = 0x3c00;
      for (int t = 0; t < 8; ++t) PutScaleMin(block, t, t == s ? bits : 1, t == s ? 63 - bits : 2);
      for (int i = 0; i < 128; ++i)
        block.qs[i] = static_cast<std::uint8_t>((i + bits) % 16 | (i + 5) % 16 << 4);
      float got[256];
      ASSERT_TRUE(DecodeRow(DataType::kQ4_K, &block, 256, got));
      for (int i = 0; i < 256; ++i) {
        const int j = i / 64, l = i % 32, sub = i / 32;
        const int code = i % 64 < 32 ? (32 * j + l + bits) % 16 : (32 * j + l + 5) % 16;
        const int want = sub == s ? bits * code - (63 - bits) : code - 2;
        ASSERT_EQ(got[i], static_cast<float>(want)) << "sub-block " << s << " value " << i;
      }
    }
  }
}

TEST(BlockFormatTest, Mxfp4DecodesEveryCodeUnderEveryPowerOfTwo) {
  // By its definition: a sign, 2 bits of exponent with bias 1, 1 bit of mantissa.
  const auto e2m1 = [](int code) {
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const double magnitude =
        exponent == 0 ? 0.5 * mantissa : std::ldexp(1 + 0.5 * mantissa, exponent - 1);
    return code < 8 || magnitude == 0 ? magnitude : -magnitude;
  };
  for (int e = 0; e < 256; ++e) {
    BlockMxfp4 block{static_cast<std::uint8_t>(e), {}};
    for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<std::uint8_t>(j | (15 - j) << 4);
    float got[32];
    double exact[32];
    ASSERT_TRUE(DecodeRow(DataType::kMXFP4, &block, 32, got));
    ASSERT_TRUE(DecodeRow(DataType::kMXFP4, &block, 32, exact));
    for (int j = 0; j < 32; ++j) {
      const double want = std::ldexp(e2m1(j < 16 ? j : 31 - j), e - 127);
      ASSERT_EQ(exact[j], want) << "e " << e << " value " << j;
      // 6 * 2^126 and above is infinite in f32.
      ASSERT_EQ(BitsOfF32(got[j]), BitsOfF32(static_cast<float>(want))) << "e " << e << " " << j;
    }
  }
}

TEST(BlockFormatTest, Mxfp4EncodesWhatItCannotHoldToTheNearestCode) {
  const auto decoded = [](const std::vector<float>& x) {
    BlockMxfp4 block;
    EXPECT_TRUE(EncodeRow(DataType::kMXFP4, x.data(), 32, &block));
    std::vector<double> y(32);
    EXPECT_TRUE(DecodeRow(DataType::kMXFP4, &block, 32, y.data()));
    return y;
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> x(32);
  EXPECT_EQ(decoded(x), std::vector<double>(32));
  x[3] = 7.5f, x[4] = -2.5f, x[5] = 0.25f, x[6] = -0.26f;  // above the largest; ties; near 0
  const std::vector<double> y = decoded(x);
  EXPECT_EQ(y[3], 6);
  EXPECT_EQ(y[4], -2);
  EXPECT_EQ(y[5], 0);
  EXPECT_EQ(y[6], -0.5);
  x[3] = std::numeric_limits<float>::max();
  EXPECT_EQ(decoded(x)[3], std::ldexp(6, 125));
  x[3] = -kInf;
  EXPECT_LT(decoded(x)[3], -std::ldexp(4, 126));
  x.assign(32, std::numeric_limits<float>::quiet_NaN());
  x[0] = 1;
  EXPECT_EQ(decoded(x)[0], 1);
  x.assign(32, 1e-45f);
  for (const double value : decoded(x)) EXPECT_GE(value, 0);
}

TEST(BlockFormatTest, PlainTypesDecodeToTheirValues) {
  const std::uint8_t nibbles[] = {0x21, 0xf0};
  float got[4];
  ASSERT_TRUE(DecodeRow(DataType::kU4, nibbles, 4, got));
  EXPECT_EQ(std::vector<float>(got, got + 4), (std::vector<float>{1, 2, 0, 15}));
  const std::int32_t wide[] = {-7, 1 << 30};
  ASSERT_TRUE(DecodeRow(DataType::kI32, wide, 2, got));
  EXPECT_EQ(got[0], -7);
  EXPECT_EQ(got[1], static_cast<float>(1 << 30));
  const unsigned char odd[] = {0, 0x00, 0x3c, 0x00, 0xc0};  // f16 1 and -2 at an odd address
  ASSERT_TRUE(DecodeRow(DataType::kF16, odd + 1, 2, got));
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], -2);
}

std::vector<unsigned char> FromHex(const std::string& text) {
  std::vector<unsigned char> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<unsigned char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Made by tools/goldens/make_blocks.py with gguf-py.
TEST(BlockFormatTest, BlocksDecodeAndEncodeAsTheReferenceOfTheFormatDoes) {
  std::ifstream file(std::string(TILEWRIGHT_TEST_DATA) + "/goldens/blocks.txt");
  std::string what, name, from, to;
  int cases = 0;
  std::set<DataType> types;
  while (file >> what >> name >> from >> to) {
    SCOPED_TRACE(what + " " + name + " case " + std::to_string(++cases));
    const DataType type = ParseDataType(name).value();
    types.insert(type);
    const std::vector<unsigned char> source = FromHex(from), want = FromHex(to);
    std::vector<unsigned char> got(want.size());
    const int n = GetTypeInfo(type).block_elements;
    if (what == "decode") {
      std::vector<float> values(static_cast<std::size_t>(n));
      ASSERT_TRUE(DecodeRow(type, source.data(), n, values.data()));
      for (float& value : values) {
        if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
      }
      std::memcpy(got.data(), values.data(), got.size());
    } else {
      std::vector<float> values(static_cast<std::size_t>(n));
      std::memcpy(values.data(), source.data(), source.size());
      ASSERT_TRUE(EncodeRow(type, values.data(), n, got.data()));
    }
    EXPECT_EQ(got, want);
  }
  EXPECT_EQ(cases, 9 * 8 + 4 * 2 + 6 * 6 + 12 * 3 + 12);
  for (const BlockFormat& format : kFormats)
    EXPECT_TRUE(types.contains(format.type)) << format.name;
}

TEST(BlockFormatTest, LengthsAndTypesAreChecked) {
  float out[64];
  const unsigned char bytes[256] = {};
  const Status length = DecodeRow(DataType::kQ4_0, bytes, 31, out);
  ASSERT_FALSE(length);
  EXPECT_EQ(length.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(length.error().message.find("31"), std::string::npos);
  EXPECT_NE(length.error().message.find("32"), std::string::npos);
  EXPECT_FALSE(DecodeRow(DataType::kNone, bytes, 1, out));
  EXPECT_FALSE(DecodeRow(DataType::kF32, bytes, -1, out));
  EXPECT_EQ(EncodeRow(DataType::kI32, out, 2, out).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(DecodeRow(DataType::kQ6_K, bytes, 0, out));
}

/// Largest error of one encode and decode of normal values, as a share of the largest value of its
/// block.
double RoundTripError(DataType type, int block, std::uint64_t seed) {
  const std::vector<float> x = test::RandomFloats(4096, seed, 0.02);
  std::vector<unsigned char> bytes(BytesOf(type, 4096));
  std::vector<float> y(4096);
  EXPECT_TRUE(EncodeRow(type, x.data(), 4096, bytes.data()));
  EXPECT_TRUE(DecodeRow(type, bytes.data(), 4096, y.data()));
  double worst = 0;
  for (int b = 0; b < 4096; b += block) {
    double largest = 0, error = 0;
    for (int i = b; i < b + block; ++i) {
      largest = std::fmax(largest, std::fabs(x[static_cast<std::size_t>(i)]));
      error = std::fmax(error,
                        std::fabs(x[static_cast<std::size_t>(i)] - y[static_cast<std::size_t>(i)]));
    }
    worst = std::fmax(worst, error / largest);
  }
  return worst;
}

TEST(BlockFormatTest, EncodingStaysWithinHalfAStep) {
  // Step over the largest value: q4_0 1/8 (a value near the unrepresentable +8 loses a whole step),
  // q4_1 2/15 at most, q8_0 1/127; the f16 scale adds 2^-11 of the value.
  EXPECT_LT(RoundTripError(DataType::kQ4_0, 32, 1), 0.126);
  EXPECT_LT(RoundTripError(DataType::kQ4_1, 32, 2), 0.5 * 2 / 15 + 2e-3);
  EXPECT_LT(RoundTripError(DataType::kQ8_0, 32, 3), 0.5 / 127 + 1e-3);
  EXPECT_LT(RoundTripError(DataType::kQ6_K, 16, 4), 1.1 / 32);
  // q4_k: half a step of (max - min) / 15, plus half a 63rd of the largest min and 15 half 63rds of
  // the largest step: at most twice the largest value, over the largest of its own 256.
  EXPECT_LT(RoundTripError(DataType::kQ4_K, 256, 9), 0.5 * 2 / 15 + 0.5 / 63 + 0.5 * 2 / 63 + 2e-3);
  // As q4_0, q4_1 and q4_k with twice the codes.
  EXPECT_LT(RoundTripError(DataType::kQ5_0, 32, 10), 0.063);
  EXPECT_LT(RoundTripError(DataType::kQ5_1, 32, 11), 0.5 * 2 / 31 + 2e-3);
  EXPECT_LT(RoundTripError(DataType::kQ5_K, 256, 12),
            0.5 * 2 / 31 + 0.5 / 63 + 0.5 * 2 / 63 + 2e-3);
  // As q4_k with 4 codes and integers up to 15.
  EXPECT_LT(RoundTripError(DataType::kQ2_K, 256, 13), 0.5 * 2 / 3 + 0.5 / 15 + 0.5 * 2 / 15 + 2e-3);
  // As q6_k with 8 codes; the scale of 16 values is off by half a 32nd of the largest one.
  EXPECT_LT(RoundTripError(DataType::kQ3_K, 256, 14), 1.1 / 4 + 0.5 / 32 + 2e-3);
  // Half of the widest gap of the table, 24 of 127, but a value near 127 gets 113.
  EXPECT_LT(RoundTripError(DataType::kIQ4_NL, 32, 15), 1.3 * 14 / 127);
  EXPECT_LT(RoundTripError(DataType::kIQ4_XS, 256, 16), 1.3 * 14 / 127 + 0.5 / 32);
  // The largest value is scaled to 4 or more and below 8: half of the gap from 4 to 6 for those up to
  // 7, and a whole unit at most for those above.
  EXPECT_LT(RoundTripError(DataType::kMXFP4, 32, 17), 0.2501);
  EXPECT_LT(RoundTripError(DataType::kF16, 32, 5), 0x1p-11);
  EXPECT_LT(RoundTripError(DataType::kBF16, 32, 6), 0x1p-8);
  EXPECT_LT(RoundTripError(DataType::kF8E4M3, 32, 7), 0x1p-4);
  EXPECT_EQ(RoundTripError(DataType::kF32, 32, 8), 0);
}

TEST(BlockFormatTest, TheAverageErrorOfQ6KIsThatOfSixBits) {
  const std::vector<float> x = test::RandomFloats(65536, 9);
  std::vector<unsigned char> bytes(BytesOf(DataType::kQ6_K, 65536));
  std::vector<float> y(65536);
  ASSERT_TRUE(EncodeRow(DataType::kQ6_K, x.data(), 65536, bytes.data()));
  ASSERT_TRUE(DecodeRow(DataType::kQ6_K, bytes.data(), 65536, y.data()));
  const std::vector<double> want(x.begin(), x.end());
  // Uniform error of step s has deviation s / sqrt(12); the extreme of 16 normal values is
  // about 1.8, so s is about 1.8 / 32.
  EXPECT_LT(test::RelativeL2(y, want), 0.02);
  EXPECT_GT(test::RelativeL2(y, want), 0.005);
}

TEST(BlockFormatTest, AllZeroAndExtremeBlocksEncodeToFiniteValues) {
  for (const BlockFormat& format : kFormats) {
    const DataType type = format.type;
    SCOPED_TRACE(format.name);
    std::vector<float> x(256, 0.0f), y(256);
    std::vector<unsigned char> bytes(BytesOf(type, 256));
    ASSERT_TRUE(EncodeRow(type, x.data(), 256, bytes.data()));
    ASSERT_TRUE(DecodeRow(type, bytes.data(), 256, y.data()));
    for (const float value : y) ASSERT_EQ(value, 0);
    // Powers of two hold both, the larger one as 6 * 16; a scale of f16 vanishes for the smaller one.
    const bool powers = format.scale == Factor::kPowerOfTwo;
    x[3] = 1e-30f;
    x[100] = -100.0f;
    ASSERT_TRUE(EncodeRow(type, x.data(), 256, bytes.data()));
    ASSERT_TRUE(DecodeRow(type, bytes.data(), 256, y.data()));
    EXPECT_NEAR(y[100], powers ? -96 : -100, 0.1);
    EXPECT_NEAR(y[3], powers ? 1e-30 : 0, powers ? 2e-31 : 0);
  }
}

}  // namespace
}  // namespace tilewright
