// Calls with keys and values: what three calls do one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"
#include "ops/rope/angles.h"
#include "ops/rope/cuda/rope_cases.h"
#include "ops/rope/rope.h"

namespace tilewright::rope {
namespace {

using RopeQkvTest = test::OpTest<Op>;

constexpr DataType kFloats[] = {DataType::kF32, DataType::kF16, DataType::kBF16};

/// The bytes of a view's span, from one copy of an arena to another.
void CopyView(const TensorView& from, const TensorView& to) {
  test::Arena::ForEachElement(from, [&](std::int64_t at, std::int64_t) {
    std::memcpy(MutableAddressOf(to, at), AddressOf(from, at), BytesOf(from.dtype, 1));
  });
}

TEST_F(RopeQkvTest, EveryKernelGivesTheBitsOfThreeCalls) {
  for (Kernel* kernel : Kernels()) {
    SCOPED_TRACE(kernel->name());
    for (const DataType in : kFloats) {
      for (const DataType cache : kFloats) {
        for (const auto& one : CudaKvCases(in, cache)) {
          test::Arena together = one.arena, apart = one.arena, oracle = one.arena;
          ASSERT_TRUE(LaunchOnce<Op>(*kernel, one.At(together.base()), Stream{})) << one.name;
          const Args args = one.At(apart.base());
          ASSERT_TRUE(LaunchOnce<Op>(*kernel, KeysOf(args), Stream{})) << one.name;
          ASSERT_TRUE(LaunchOnce<Op>(*kernel, QueriesOf(args), Stream{})) << one.name;
          // A scatter rounds once, if at all: the oracle has its bits.
          ASSERT_TRUE(Reference(one.At(oracle.base()))) << one.name;
          CopyView(one.At(oracle.base()).v_cache, args.v_cache);
          EXPECT_EQ(std::memcmp(together.base(), apart.base(), apart.size()), 0) << one.name;
          EXPECT_EQ(test::DifferenceOf(one, together, oracle), "") << one.name;
        }
      }
    }
  }
}

/// Two long rows into a cache of q8_0, all parts of one product.
struct LongRows {
  static constexpr std::int64_t kHeadDim = 512, kHeads = 40, kKvHeads = 20, kAll = 80, kContext = 4;
  LongRows() {
    Random random(5);
    for (float& x : qkv) x = static_cast<float>(random.Normal());
    const auto part = [&](std::int64_t first, std::int64_t heads) {
      return TensorView{qkv.data() + first * kHeadDim,
                        {kHeadDim, heads, 2, 1},
                        {1, kHeadDim, kAll * kHeadDim, 0},
                        DataType::kF32};
    };
    const auto cached = [&](std::int64_t which) {
      const std::array<std::int64_t, 4> shape = {kHeadDim, kKvHeads, kContext, 1};
      const auto bytes = BytesOf(DataType::kQ8_0, kHeadDim * kKvHeads * kContext);
      return Contiguous(caches.data() + static_cast<std::size_t>(which) * bytes, DataType::kQ8_0,
                        shape);
    };
    const auto ints = [](std::vector<std::int32_t>& values) {
      return Contiguous(values.data(), DataType::kI32, {2, 1, 1, 1});
    };
    args.qk = part(0, kHeads), args.k = part(kHeads, kKvHeads);
    args.v = part(kHeads + kKvHeads, kKvHeads);
    args.out = Contiguous(out.data(), DataType::kF32, {kHeadDim, kHeads, 2, 1});
    args.cache = cached(0), args.v_cache = cached(1);
    args.positions = ints(positions), args.slots = ints(slots);
    args.params = {.mode = RopeMode::kHalfSplit, .dims = 512};
  }
  std::vector<float> qkv = std::vector<float>(2 * kAll * kHeadDim);
  std::vector<float> out = std::vector<float>(2 * kHeads * kHeadDim);
  std::vector<std::byte> caches =
      std::vector<std::byte>(2 * BytesOf(DataType::kQ8_0, kHeadDim* kKvHeads* kContext));
  std::vector<std::int32_t> positions = {3, 1}, slots = {0, 0};
  Args args{};
};

TEST_F(RopeQkvTest, TheHeadsOfALongRowAreDividedAmongThreadsAndGiveTheSameBits) {
  LongRows rows;
  const std::vector<std::byte> untouched = rows.caches;
  for (Kernel* kernel : Kernels()) {
    if (kernel->info().reference) continue;
    SCOPED_TRACE(kernel->name());
    test::ExpectSameBitsOnAnyThreads<Op>(*kernel, rows.args, rows.out.data(),
                                         rows.out.size() * sizeof(float));
    test::ExpectSameBitsOnAnyThreads<Op>(*kernel, rows.args, rows.caches.data(),
                                         rows.caches.size());
    EXPECT_NE(rows.caches, untouched);
  }
}

TEST_F(RopeQkvTest, APlaceThatIsNotThereIsRefusedBeforeAnythingIsWritten) {
  LongRows rows;
  rows.positions[1] = LongRows::kContext;
  const LongRows before = rows;
  for (Kernel* kernel : Kernels()) {
    const Status status = LaunchOnce<Op>(*kernel, rows.args, Stream{});
    ASSERT_FALSE(status) << kernel->name();
    EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
    EXPECT_EQ(rows.out, before.out);
    EXPECT_EQ(rows.caches, before.caches);
  }
}

TEST_F(RopeQkvTest, ViewsThatDoNotFitTogetherAreRefusedByName) {
  const auto refused = [](auto change, const char* words) {
    LongRows rows;
    change(rows.args);
    const Result<Desc> desc = DescOf(rows.args, CallTerms{});
    ASSERT_FALSE(desc) << words;
    EXPECT_THAT(desc.error().message, testing::HasSubstr(words));
  };
  refused([](Args& a) { a.k.dtype = DataType::kF16; }, "k is f16 and v f32, must be f32 as qk");
  refused([](Args& a) { a.k.shape[2] = 1; },
          "k has shape [512, 20, 1, 1], must be [512, kv_heads, 2]");
  refused([](Args& a) { a.v.shape[1] = 19; }, "v has shape [512, 19, 2, 1]");
  refused([](Args& a) { a.v_cache.shape[2] = 3; }, "v_cache has shape [512, 20, 3, 1]");
  refused([](Args& a) { a.v_cache.dtype = DataType::kF32; }, "v_cache is f32, must be q8_0");
  refused([](Args& a) { a.cache.shape[1] = 2; }, "into cache [512, 2, 4, 1]");
  refused([](Args& a) { a.out.shape[1] = 2; }, "out has shape [512, 2, 2, 1]");
  refused([](Args& a) { a.slots.shape[0] = 1; }, "slots");
  for (const Desc& desc : {Desc{.kv_heads = 2}, Desc{.type_cache = DataType::kF32},
                           Desc{.scatter = true, .kv_heads = 2, .type_cache = DataType::kF32},
                           Desc{.head_dim = 66, .kv_heads = 2, .type_cache = DataType::kQ8_0}})
    EXPECT_FALSE(Validate(desc)) << KeyOf(desc);
}

}  // namespace
}  // namespace tilewright::rope
