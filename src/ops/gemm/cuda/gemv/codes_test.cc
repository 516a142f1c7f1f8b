#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/block_format.h"
#include "core/formats/random_blocks.h"
#include "core/random.h"
#include "device/cuda/kernels/numeric.cuh"
#include "ops/gemm/cuda/gemv/gemv_codes.cuh"
#include "ops/gemm/cuda/gemv/segment.h"

namespace tilewright {
namespace {

constexpr int kSubBlocks = tw::kGemvSpan / 32;

struct Value {
  double value = 0;
  double magnitude = 0;  ///< of what is added to make it
  int seen = 0;
};

/// The values of a span as lane t of four sees sub-blocks kI .. 3 of both halves.
template <class F, int kI = 0>
void CollectValues(const typename F::Row& row, int t, std::vector<Value>& values) {
  const auto head = F::LoadHead(row);
  for (int half = 0; half < 2; ++half) {
    const int s = 4 * half + kI;
    tw::u32 pairs[2][2];
    F::template Pairs<kI>(row, half, t, pairs);
    for (int h = 0; h < 2; ++h) {
      const tw::CodeScale scale = F::ScaleOf(row, head, s, F::kScales == 2 ? h : 0);
      for (int j = 0; j < 4; ++j) {
        const tw::u32 pair = pairs[h][j % 2];  // {0, 2} and {1, 3}
        const auto code =
            static_cast<double>(j < 2 ? tw::LowBF16ToF32(pair) : tw::HighBF16ToF32(pair));
        Value& value = values[static_cast<std::size_t>(32 * s + 16 * h + 4 * t + j)];
        const double product = static_cast<double>(scale.scale) * code;
        value.value = product + static_cast<double>(scale.offset);
        value.magnitude = std::fabs(product) + std::fabs(static_cast<double>(scale.offset));
        ++value.seen;
      }
    }
  }
  if constexpr (kI + 1 < 4) CollectValues<F, kI + 1>(row, t, values);
}

/// Random blocks at every place within 16 bytes that their alignment allows. Codes are exact, so
/// that a value is off by the roundings of its scale and offset only.
template <class Block>
void ExpectValuesOfTheFormat() {
  constexpr DataType type = Block::kFormat.type;
  using F = tw::Codes<static_cast<tw::Type>(type)>;
  constexpr int alignment = tw::GemvRowAlignment(F::kBytes);
  constexpr int kBlocks = tw::kGemvSpan / F::kBlock;
  Random random(static_cast<std::uint64_t>(type));
  alignas(16) unsigned char memory[kBlocks * F::kBytes + 32] = {};
  for (int trial = 0; trial < 400; ++trial) {
    const int skip = trial * alignment % 16;
    unsigned char* span = memory + skip;
    RandomBlocks(type, kBlocks, random, span);
    std::vector<Value> got(tw::kGemvSpan);
    const auto row = F::Row::At(memory, skip);
    for (int t = 0; t < 4; ++t) CollectValues<F>(row, t, got);
    std::vector<float> want(tw::kGemvSpan);
    ASSERT_TRUE(DecodeRow(type, span, tw::kGemvSpan, want.data()));
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].seen, 1) << "value " << i;
      ASSERT_NEAR(got[i].value, static_cast<double>(want[i]), 0x1p-22 * got[i].magnitude)
          << "trial " << trial << " value " << i;
    }
  }
}

template <class... Blocks>
int ExpectAllFormats(BlockList<Blocks...>) {
  int tested = 0;
  const auto expect = [&tested]<class Block>(const Block*) {
    if constexpr (requires { tw::Codes<static_cast<tw::Type>(Block::kFormat.type)>::kBytes; }) {
      SCOPED_TRACE(Block::kFormat.name);
      ExpectValuesOfTheFormat<Block>();
      ++tested;
    }
  };
  (expect(static_cast<const Blocks*>(nullptr)), ...);
  return tested;
}

TEST(GemvCodesTest, SpansHaveTheValuesOfTheFormat) { EXPECT_GE(ExpectAllFormats(AllBlocks{}), 12); }

TEST(GemvCodesTest, EveryByteOfAScaleIsItsPowerOfTwo) {
  for (int e = 0; e < 256; ++e) {
    const unsigned char block[17] = {static_cast<unsigned char>(e)};
    const tw::CodeScale scale =
        tw::BlockCodes<tw::Type::kMXFP4>::ScaleOf(tw::SingleBytes{block}, 0, 0, 0);
    EXPECT_EQ(scale.scale, std::ldexp(1.0f, e - 128));
  }
}

TEST(GemvCodesTest, EveryNibbleAndSignedByteIsExact) {
  for (tw::u32 code = 0; code < 16; ++code) {
    tw::u32 low[2], high[2];
    tw::NibblePairs<0>(code * 0x01010101u, low);
    tw::NibblePairs<1>(code * 0x10101010u, high);
    const float want = static_cast<float>(code) + tw::kCodeBias;
    for (const tw::u32 pair : {low[0], low[1], high[0], high[1]}) {
      EXPECT_EQ(tw::LowBF16ToF32(pair), want);
      EXPECT_EQ(tw::HighBF16ToF32(pair), want);
    }
  }
  for (int code = -128; code < 128; ++code) {
    tw::u32 pairs[2];
    tw::SignedBytePairs((static_cast<tw::u32>(code) & 0xffu) * 0x01010101u, pairs);
    for (const tw::u32 pair : pairs) {
      EXPECT_EQ(tw::LowBF16ToF32(pair), static_cast<float>(code));
      EXPECT_EQ(tw::HighBF16ToF32(pair), static_cast<float>(code));
    }
  }
}

}  // namespace
}  // namespace tilewright
