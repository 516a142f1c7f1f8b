#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "engine/op_stages.h"
#include "ops/copy/copy.h"

namespace tilewright {
namespace {

class KvScatterTest : public testing::Test {
 protected:
  KvScatterTest() {
    AddKvScatter(registry_);
    device_ = DetectCpuCappedAt(Isa::kAmx);
  }
  std::vector<const KvScatterKernel*> Kernels() const {
    std::vector<const KvScatterKernel*> kernels;
    for (const KvScatterKernel* kernel : registry_.kernels()) {
      if (!kernel->CheckDevice(device_)) kernels.push_back(kernel);
    }
    return kernels;
  }
  KvScatterRegistry registry_;
  DeviceSpec device_;
};

TensorView Ints(std::vector<std::int32_t>& values) {
  return Contiguous(values.data(), DataType::kI32,
                    {static_cast<std::int64_t>(values.size()), 1, 1, 1});
}

TEST_F(KvScatterTest, EveryRowLandsInItsPlaceAndNothingElseChanges) {
  const auto pool = MakeThreadPool(3);
  constexpr std::int64_t kContext = 20, kSlots = 3;
  std::uint64_t seed = 300;
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ8_0}) {
    for (const auto& [head_dim, heads, pad] :
         {std::tuple{64, 3, 0}, {64, 3, 32}, {32, 1, 0}, {128, 8, 0}}) {
      // Rows go to places in no order, several slots mixed.
      std::vector<std::int32_t> positions, slots;
      for (std::int32_t r = 0; r < 30; ++r) {
        positions.push_back((r * 7) % 20);
        slots.push_back(r < 20 ? 2 : 0);
      }
      const std::int64_t rows = 30, head = head_dim + pad, row = head * heads + pad;
      test::Guarded<float> x(test::RandomFloats(static_cast<std::size_t>(row * rows), ++seed), 4);
      TensorView x_view{
          x.data(), {head_dim, heads, rows, 1}, {1, head, row, row * rows}, DataType::kF32};
      const std::int64_t place = head * heads;
      test::GuardedBytes want(BytesOf(type, place * kContext * kSlots)), got(want.size());
      TensorView cache{want.data(),
                       {head_dim, heads, kContext, kSlots},
                       {1, head, place, place * kContext},
                       type};
      // What should be there, by the format's own encoder.
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t to = h * head + positions[static_cast<std::size_t>(r)] * place +
                                  slots[static_cast<std::size_t>(r)] * place * kContext;
          ASSERT_TRUE(EncodeRow(type, x.data() + r * row + h * head, head_dim,
                                static_cast<unsigned char*>(want.data()) + BytesOf(type, to)));
        }
      }
      for (const KvScatterKernel* kernel : Kernels()) {
        SCOPED_TRACE(std::string(kernel->name()) + " " + std::string(DataTypeName(type)) +
                     " seed " + std::to_string(seed));
        got.Poison();
        cache.data = got.data();
        ASSERT_TRUE(
            kernel->Launch({x_view, cache, Ints(positions), Ints(slots)}, Stream{pool.get()}));
        EXPECT_EQ(got.Damage(), "");
        EXPECT_TRUE(test::BitwiseEqual(got.data(), want.data(), want.size()));
      }
    }
  }
}

TEST_F(KvScatterTest, TheOracleKeepsF64) {
  std::vector<double> x = {0.1, 0.2}, cache(8, -1.0);
  std::vector<std::int32_t> positions = {3}, slots = {0};
  ASSERT_TRUE(ReferenceKvScatter({Contiguous(x.data(), DataType::kF64, {2, 1, 1, 1}),
                                  Contiguous(cache.data(), DataType::kF64, {2, 1, 4, 1}),
                                  Ints(positions), Ints(slots)}));
  EXPECT_EQ(cache, (std::vector<double>{-1, -1, -1, -1, -1, -1, 0.1, 0.2}));
}

TEST_F(KvScatterTest, ABadPlaceIsRefusedByNameBeforeAnythingIsWritten) {
  std::vector<float> x(8, 1.0f), cache(24, 5.0f);
  struct Case {
    std::vector<std::int32_t> positions, slots;
    ErrorCode code;
    const char* words;
  };
  for (Case c : {Case{{0, 3}, {0, 0}, ErrorCode::kExhausted, "positions[1] = 3, the context has 3"},
                 Case{{0, -1}, {0, 0}, ErrorCode::kInvalidArgument, "positions[1] = -1"},
                 Case{{0, 0}, {0, 2}, ErrorCode::kInvalidArgument, "slots[1] = 2, the cache has 2"},
                 Case{{0, 0}, {0, -5}, ErrorCode::kInvalidArgument, "slots[1] = -5"}}) {
    for (const KvScatterKernel* kernel : Kernels()) {
      const Status status = kernel->Launch({Contiguous(x.data(), DataType::kF32, {4, 1, 2, 1}),
                                            Contiguous(cache.data(), DataType::kF32, {4, 1, 3, 2}),
                                            Ints(c.positions), Ints(c.slots)},
                                           Stream{});
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, c.code);
      EXPECT_NE(status.error().message.find(c.words), std::string::npos) << status.error().message;
      EXPECT_EQ(cache, std::vector<float>(24, 5.0f)) << kernel->name();
    }
  }
}

TEST_F(KvScatterTest, AHeadThatDoesNotDivideIntoBlocksIsRefused) {
  std::vector<float> x(48), cache(200);
  std::vector<std::int32_t> zero = {0};
  const auto desc = DescOf(KvScatterArgs{Contiguous(x.data(), DataType::kF32, {48, 1, 1, 1}),
                                         Contiguous(cache.data(), DataType::kQ8_0, {48, 1, 2, 1}),
                                         Ints(zero), Ints(zero)},
                           1);
  ASSERT_FALSE(desc);
  EXPECT_NE(desc.error().message.find("head_dim = 48"), std::string::npos) << desc.error().message;
}

TEST_F(KvScatterTest, Q8BlocksOfZerosAndOfTinyValuesDecodeToZero) {
  std::vector<float> x(64, 0.0f);
  x[40] = 1e-40f;
  std::vector<std::int32_t> zero = {0};
  for (const KvScatterKernel* kernel : Kernels()) {
    std::vector<unsigned char> cache(68, 0xff);
    ASSERT_TRUE(kernel->Launch(
        {Contiguous(x.data(), DataType::kF32, {64, 1, 1, 1}),
         Contiguous(cache.data(), DataType::kQ8_0, {64, 1, 1, 1}), Ints(zero), Ints(zero)},
        Stream{}));
    std::vector<float> back(64);
    ASSERT_TRUE(DecodeRow(DataType::kQ8_0, cache.data(), 64, back.data()));
    EXPECT_EQ(back, std::vector<float>(64, 0.0f)) << kernel->name();
  }
}

}  // namespace
}  // namespace tilewright
