#include "core/formats/formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/block_format.h"
#include "core/formats/random_blocks.h"
#include "core/random.h"

namespace tilewright {
namespace {

/// Calls `check` with each block struct of the list.
template <class Check, class... Blocks>
void ForEachBlock(BlockList<Blocks...>, Check check) {
  (check.template operator()<Blocks>(), ...);
}

TEST(FormatsTest, RandomBlocksAreFiniteAndUseEveryCodeOfTheFormat) {
  ForEachBlock(AllBlocks{}, []<class Block>() {
    constexpr BlockFormat kFormat = Block::kFormat;
    SCOPED_TRACE(kFormat.name);
    constexpr int kCount = 400;
    Random random(3);
    std::vector<Block> blocks(kCount);
    RandomBlocks(kFormat.type, kCount, random, blocks.data());
    std::vector<float> values(static_cast<std::size_t>(kCount * kFormat.elements));
    ASSERT_TRUE(DecodeRow(kFormat.type, blocks.data(), static_cast<std::int64_t>(values.size()),
                          values.data()));
    for (const float value : values) ASSERT_TRUE(std::isfinite(value));
    std::set<int> codes;
    for (const Block& block : blocks) {
      UnpackedBlock unpacked;
      Unpack(block, unpacked);
      codes.insert(unpacked.codes, unpacked.codes + kFormat.elements);
    }
    EXPECT_EQ(codes.size(), std::size_t{1} << kFormat.code_bits);
    EXPECT_EQ(*codes.rbegin(), (1 << kFormat.code_bits) - 1);
  });
}

TEST(FormatsTest, F32IsTheExactValueRoundedOnce) {
  for (const BlockFormat& format : kFormats) {
    SCOPED_TRACE(format.name);
    const std::int64_t count = 3000 * format.elements;
    Random random(5);
    std::vector<unsigned char> bytes(BytesOf(format.type, count));
    RandomBlocks(format.type, 3000, random, bytes.data());
    std::vector<float> got(static_cast<std::size_t>(count));
    std::vector<double> exact(got.size());
    ASSERT_TRUE(DecodeRow(format.type, bytes.data(), count, got.data()));
    ASSERT_TRUE(DecodeRow(format.type, bytes.data(), count, exact.data()));
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], static_cast<float>(exact[i])) << i;
      if (format.min == Factor::kNone) {
        ASSERT_EQ(static_cast<double>(got[i]), exact[i]) << i;
      }
    }
  }
}

TEST(FormatsTest, EncodingIsAsFineAsTheCodes) {
  for (const BlockFormat& format : kFormats) {
    SCOPED_TRACE(format.name);
    Random random(4);
    std::vector<float> values(256 * 64), again(values.size());
    for (float& value : values) value = static_cast<float>(random.Normal());
    std::vector<unsigned char> bytes(
        BytesOf(format.type, static_cast<std::int64_t>(values.size())));
    const auto count = static_cast<std::int64_t>(values.size());
    ASSERT_TRUE(EncodeRow(format.type, values.data(), count, bytes.data()));
    ASSERT_TRUE(DecodeRow(format.type, bytes.data(), count, again.data()));
    double squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      squares += std::pow(static_cast<double>(values[i] - again[i]), 2);
    const double error = std::sqrt(squares / static_cast<double>(values.size()));
    // A block spans about 4.2 deviations in 2^bits steps, each of which errs by step / sqrt(12).
    // Where the scale is a power of two, they are up to twice as far apart as they need be.
    const double steps = format.scale == Factor::kPowerOfTwo ? std::sqrt(2.0) : 1;
    EXPECT_LT(error, steps * 1.35 * 4.2 / std::sqrt(12.0) / std::exp2(format.code_bits));
  }
}

/// Codes that a table gives a meaning, with an integer scale: no listed format has one yet.
struct BlockLookup {
  std::uint16_t d;
  std::int8_t scales[2];
  std::uint8_t qs[16];

  static constexpr std::int8_t kValues[4] = {-7, -1, 2, 9};
  static constexpr BlockFormat kFormat{.name = "lookup",
                                       .elements = 32,
                                       .bytes = 20,
                                       .code_bits = 2,
                                       .sub_block = 16,
                                       .scale = Factor::kF16TimesInt,
                                       .has_table = true,
                                       .values = kValues};
};

TEST(FormatsTest, CodesWithALookupTableHaveItsValues) {
  UnpackedBlock block{};
  block.scale = F32ToF16(0.5f);
  block.scales[0] = 3;
  block.scales[1] = -2;
  for (int i = 0; i < 32; ++i) block.codes[i] = static_cast<std::uint8_t>(i % 4);
  double values[64] = {};
  ExpandBlock<BlockLookup>(block, values, 2);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(values[2 * i], (i < 16 ? 1.5 : -1.0) * BlockLookup::kValues[i % 4]);
    EXPECT_EQ(values[2 * i + 1], 0);
  }
}

}  // namespace
}  // namespace tilewright
