#include "ops/copy/kv_scatter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"

namespace tilewright::kv_scatter {
namespace {

using KvScatterTest = test::OpTest<Op>;

TensorView Ints(std::vector<std::int32_t>& values) {
  return Contiguous(values.data(), DataType::kI32,
                    {static_cast<std::int64_t>(values.size()), 1, 1, 1});
}

TEST_F(KvScatterTest, EveryNumberOfThreadsGivesTheSameBits) {
  constexpr std::int64_t kRows = 1200, kPlace = 192;
  std::vector<std::int32_t> positions(kRows), slots(kRows, 0);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> x = test::RandomFloats(kRows * kPlace, 7);
  for (const DataType type : {DataType::kF16, DataType::kQ8_0}) {
    std::vector<unsigned char> memory(BytesOf(type, kRows * kPlace));
    const Args args{Contiguous(x.data(), DataType::kF32, {64, 3, kRows, 1}),
                    Contiguous(memory.data(), type, {64, 3, kRows, 1}), Ints(positions),
                    Ints(slots)};
    for (Kernel* kernel : Kernels())
      test::ExpectSameBitsOnAnyThreads<Op>(*kernel, args, memory.data(), memory.size());
  }
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
      for (Kernel* kernel : Kernels()) {
        SCOPED_TRACE(std::string(kernel->name()) + " " + std::string(DataTypeName(type)) +
                     " seed " + std::to_string(seed));
        got.Poison();
        cache.data = got.data();
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, {x_view, cache, Ints(positions), Ints(slots)},
                                   Stream{pool.get()}));
        EXPECT_EQ(got.Damage(), "");
        EXPECT_TRUE(test::BitwiseEqual(got.data(), want.data(), want.size()));
      }
    }
  }
}

TEST_F(KvScatterTest, TheOracleKeepsF64) {
  std::vector<double> x = {0.1, 0.2}, cache(8, -1.0);
  std::vector<std::int32_t> positions = {3}, slots = {0};
  ASSERT_TRUE(Reference({Contiguous(x.data(), DataType::kF64, {2, 1, 1, 1}),
                         Contiguous(cache.data(), DataType::kF64, {2, 1, 4, 1}), Ints(positions),
                         Ints(slots)}));
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
                 Case{{0, -2}, {0, 0}, ErrorCode::kInvalidArgument, "positions[1] = -2"},
                 Case{{0, 0}, {0, 2}, ErrorCode::kInvalidArgument, "slots[1] = 2, the cache has 2"},
                 Case{{0, 0}, {0, -5}, ErrorCode::kInvalidArgument, "slots[1] = -5"}}) {
    for (Kernel* kernel : Kernels()) {
      const Status status = LaunchOnce<Op>(*kernel,
                                           {Contiguous(x.data(), DataType::kF32, {4, 1, 2, 1}),
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
  const auto desc =
      DescOf(Args{Contiguous(x.data(), DataType::kF32, {48, 1, 1, 1}),
                  Contiguous(cache.data(), DataType::kQ8_0, {48, 1, 2, 1}), Ints(zero), Ints(zero)},
             CallTerms{});
  ASSERT_FALSE(desc);
  EXPECT_NE(desc.error().message.find("head_dim = 48"), std::string::npos) << desc.error().message;
}

TEST_F(KvScatterTest, Q8BlocksOfZerosAndOfTinyValuesDecodeToZero) {
  std::vector<float> x(64, 0.0f);
  x[40] = 1e-40f;
  std::vector<std::int32_t> zero = {0};
  for (Kernel* kernel : Kernels()) {
    std::vector<unsigned char> cache(68, 0xff);
    ASSERT_TRUE(LaunchOnce<Op>(
        *kernel,
        {Contiguous(x.data(), DataType::kF32, {64, 1, 1, 1}),
         Contiguous(cache.data(), DataType::kQ8_0, {64, 1, 1, 1}), Ints(zero), Ints(zero)},
        Stream{}));
    std::vector<float> back(64);
    ASSERT_TRUE(DecodeRow(DataType::kQ8_0, cache.data(), 64, back.data()));
    EXPECT_EQ(back, std::vector<float>(64, 0.0f)) << kernel->name();
  }
}

TEST_F(KvScatterTest, ARowOfPaddingWritesNothingWhateverItsSlot) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6};
  std::vector<std::int32_t> positions = {1, -1, 0}, slots = {0, -7, 1};
  for (Kernel* kernel : Kernels()) {
    std::vector<float> cache(8, 9.0f);
    ASSERT_TRUE(LaunchOnce<Op>(
        *kernel,
        {Contiguous(x.data(), DataType::kF32, {2, 1, 3, 1}),
         Contiguous(cache.data(), DataType::kF32, {2, 1, 2, 2}), Ints(positions), Ints(slots)},
        Stream{}));
    EXPECT_EQ(cache, (std::vector<float>{9, 9, 1, 2, 5, 6, 9, 9})) << kernel->name();
  }
}

TEST_F(KvScatterTest, APagedCacheHoldsTheBitsOfAContiguousOne) {
  constexpr std::int64_t kHeadDim = 64, kHeads = 3, kContext = 300, kSlots = 3, kRows = 120;
  constexpr std::int64_t kPlace = kHeadDim * kHeads;
  const auto pool = MakeThreadPool(3);
  test::Guarded<float> x(test::RandomFloats(kPlace * kRows, 77), 4);
  std::vector<std::int32_t> positions, slots;
  for (std::int32_t r = 0; r < kRows; ++r) {
    positions.push_back(r * 37 % 100 * 3 - (r % 10 == 9 ? 2 : 0));
    slots.push_back(r < 100 ? 2 : 0);
  }
  positions[7] = -1;
  Args args{Contiguous(x.data(), DataType::kF32, {kHeadDim, kHeads, kRows, 1}),
            {},
            Ints(positions),
            Ints(slots)};
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kQ8_0}) {
    test::GuardedBytes flat(BytesOf(type, kPlace * kContext * kSlots));
    const std::size_t row = BytesOf(type, kPlace);
    for (Kernel* kernel : Kernels()) {
      flat.Poison();
      args.cache = Contiguous(flat.data(), type, {kHeadDim, kHeads, kContext, kSlots});
      args.pages = {};
      ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{pool.get()}));
      for (const std::int64_t page_size : {std::int64_t{7}, std::int64_t{16}, std::int64_t{256}}) {
        SCOPED_TRACE(std::string(kernel->name()) + " " + std::string(DataTypeName(type)) +
                     " pages of " + std::to_string(page_size));
        const std::int64_t per_sequence = (kContext + page_size - 1) / page_size;
        std::vector<std::int32_t> pages(static_cast<std::size_t>(per_sequence * kSlots));
        std::iota(pages.begin(), pages.end(), 1);  // one page to spare
        Random random(5);
        for (std::size_t i = pages.size() - 1; i > 0; --i)
          std::swap(pages[i], pages[static_cast<std::size_t>(random.Below(i + 1))]);
        const auto physical = static_cast<std::int64_t>(pages.size()) + 1;
        test::GuardedBytes paged(BytesOf(type, kPlace * page_size * physical));
        paged.Poison();
        args.cache = Contiguous(paged.data(), type, {kHeadDim, kHeads, page_size, physical});
        args.pages = Contiguous(pages.data(), DataType::kI32, {per_sequence, kSlots, 1, 1});
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{pool.get()}));
        EXPECT_EQ(paged.Damage(), "");
        for (std::int64_t s = 0; s < kSlots; ++s) {
          for (std::int64_t p = 0; p < kContext; ++p) {
            const std::int64_t page =
                pages[static_cast<std::size_t>(s * per_sequence + p / page_size)];
            const auto* got = static_cast<const unsigned char*>(paged.data()) +
                              static_cast<std::size_t>(page * page_size + p % page_size) * row;
            const auto* want = static_cast<const unsigned char*>(flat.data()) +
                               static_cast<std::size_t>(s * kContext + p) * row;
            ASSERT_TRUE(test::BitwiseEqual(got, want, row)) << s << " " << p;
          }
        }
      }
    }
  }
}

TEST_F(KvScatterTest, APhysicalPageOutOfRangeIsRefusedByNameBeforeAnythingIsWritten) {
  std::vector<float> x(4, 1.0f), cache(24, 5.0f);
  std::vector<std::int32_t> positions = {0, 4}, slots = {0, 1}, pages = {0, 1, 2, 3};
  Args args{Contiguous(x.data(), DataType::kF32, {2, 1, 2, 1}),
            Contiguous(cache.data(), DataType::kF32, {2, 1, 4, 3}), Ints(positions), Ints(slots),
            Contiguous(pages.data(), DataType::kI32, {2, 2, 1, 1})};
  for (Kernel* kernel : Kernels()) {
    for (const std::int32_t bad : {3, -1}) {
      pages[3] = bad;
      const Status status = LaunchOnce<Op>(*kernel, args, Stream{});
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_NE(status.error().message.find("pages[1, 1] = " + std::to_string(bad)),
                std::string::npos)
          << status.error().message;
    }
    pages[3] = 2;
    positions[1] = 8;
    EXPECT_EQ(LaunchOnce<Op>(*kernel, args, Stream{}).error().code, ErrorCode::kExhausted);
    positions[1] = 4;
    EXPECT_EQ(cache, std::vector<float>(24, 5.0f)) << kernel->name();
  }
  args.pages.dtype = DataType::kF32;
  EXPECT_FALSE(LaunchOnce<Op>(*Kernels()[0], args, Stream{}));
}

TEST_F(KvScatterTest, EveryFieldOfTheProblemIsInItsKey) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .kv_heads = 2, .page_size = 16});
}

}  // namespace
}  // namespace tilewright::kv_scatter
