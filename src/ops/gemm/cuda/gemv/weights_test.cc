#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/block_format.h"
#include "core/numeric.h"
#include "core/random.h"
#include "core/test_util.h"
#include "device/cuda/kernels/numeric.cuh"
#include "ops/gemm/cuda/gemv/gemv_weights.cuh"

namespace tilewright {
namespace {

template <int kWords>
struct Words {
  std::uint32_t v[kWords];
};

/// Memory that refuses what a GPU would: an unaligned access, or one outside of the block.
struct CheckedMemory {
  static inline const unsigned char* begin = nullptr;
  static inline std::size_t size = 0;

  template <class T>
  static T Read(const void* p) {
    const auto* at = static_cast<const unsigned char*>(p);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % sizeof(T), 0u) << "unaligned";
    EXPECT_TRUE(at >= begin && at + sizeof(T) <= begin + size)
        << "byte " << at - begin << " of a block of " << size;
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  static Words<4> Load16(const void* p) { return Read<Words<4>>(p); }
  static Words<2> Load8(const void* p) { return Read<Words<2>>(p); }
  static std::uint32_t Load4(const void* p) { return Read<std::uint32_t>(p); }
  static std::uint32_t Load2(const void* p) { return Read<std::uint16_t>(p); }
};

/// All values of one block as the lanes see them; every value must be some lane's, once.
template <tw::Type kType>
std::vector<float> DecodeAsLanes(const unsigned char* block) {
  using W = tw::Weights<kType>;
  CheckedMemory::begin = block;
  CheckedMemory::size = W::kBytes;
  std::vector<float> values(W::kBlock, NAN);
  std::vector<int> seen(W::kBlock, 0);
  for (int part = 0; part < W::kLanes; ++part) {
    const auto raw = W::template Load<CheckedMemory>(block, part);
    const auto scales = W::Prepare(raw, part);
    for (int i = 0; i < W::kQuads; ++i) {
      float w[4];
      W::Decode(raw, scales, i, w);
      const int at = W::QuadOffset(part, i);
      EXPECT_EQ(at % 4, 0);
      for (int j = 0; j < 4; ++j) {
        values[static_cast<std::size_t>(at + j)] = w[j];
        ++seen[static_cast<std::size_t>(at + j)];
      }
    }
  }
  for (const int count : seen) EXPECT_EQ(count, 1);
  return values;
}

/// Random blocks with finite scales at every place that the alignment of rows allows, bit for bit.
template <tw::Type kType>
void ExpectLanesDecodeAsTheFormat(DataType type, std::vector<int> scale_offsets, int alignment) {
  using W = tw::Weights<kType>;
  static_assert(W::kLanes * W::kQuads * 4 == W::kBlock);
  ASSERT_EQ(GetTypeInfo(type).block_bytes, W::kBytes);
  ASSERT_EQ(GetTypeInfo(type).block_elements, W::kBlock);
  Random random(static_cast<std::uint64_t>(type));
  alignas(16) unsigned char memory[256 + 16];
  for (int trial = 0; trial < 2000; ++trial) {
    unsigned char* block = memory + trial * alignment % 16;
    for (int i = 0; i < W::kBytes; ++i) block[i] = static_cast<unsigned char>(random.Next());
    for (const int offset : scale_offsets) {
      const auto scale = static_cast<std::uint16_t>(random.Next() & 0xbbff);  // finite
      std::memcpy(block + offset, &scale, sizeof scale);
    }
    const std::vector<float> got = DecodeAsLanes<kType>(block);
    std::vector<float> want(W::kBlock);
    ASSERT_TRUE(DecodeRow(type, block, W::kBlock, want.data()));
    for (std::size_t i = 0; i < want.size(); ++i) {
      // A zero may have either sign: -0 + 0 in one order of operations is 0 * -d in another.
      ASSERT_EQ(got[i], want[i]) << "trial " << trial << " value " << i;
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(GemvWeightsTest, Q4KLanesDecodeAsTheFormat) {
  ExpectLanesDecodeAsTheFormat<tw::Type::kQ4_K>(DataType::kQ4_K, {0, 2}, 16);
}
TEST(GemvWeightsTest, Q40LanesDecodeAsTheFormat) {
  ExpectLanesDecodeAsTheFormat<tw::Type::kQ4_0>(DataType::kQ4_0, {0}, 2);
}
TEST(GemvWeightsTest, Q41LanesDecodeAsTheFormat) {
  ExpectLanesDecodeAsTheFormat<tw::Type::kQ4_1>(DataType::kQ4_1, {0, 2}, 4);
}
TEST(GemvWeightsTest, Q80LanesDecodeAsTheFormat) {
  ExpectLanesDecodeAsTheFormat<tw::Type::kQ8_0>(DataType::kQ8_0, {0}, 2);
}
TEST(GemvWeightsTest, Q6KLanesDecodeAsTheFormat) {
  ExpectLanesDecodeAsTheFormat<tw::Type::kQ6_K>(DataType::kQ6_K, {208}, 2);
}

TEST(GemvWeightsTest, EveryNibbleAndByteIsExact) {
  for (std::uint32_t code = 0; code < 16; ++code) {
    const std::uint32_t word = code * 0x11111111u;
    const auto want = static_cast<float>(code);
    EXPECT_EQ(tw::NibbleToF32<0>(word), want);
    EXPECT_EQ(tw::NibbleToF32<4>(word), want);
    EXPECT_EQ(tw::NibbleToF32<16>(word), want);
    EXPECT_EQ(tw::NibbleToF32<20>(word), want);
    EXPECT_EQ(tw::NibbleToF32<28>(word), want);
  }
  for (std::uint32_t code = 0; code < 256; ++code) {
    EXPECT_EQ(tw::ByteToF32(code << 16 | 0xff00ffffu, 2, 128), static_cast<float>(code) - 128);
  }
}

}  // namespace
}  // namespace tilewright
