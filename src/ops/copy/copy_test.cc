#include "ops/copy/copy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/block_format.h"
#include "core/random.h"
#include "core/test_util.h"

namespace tilewright {
namespace {

template <class Registry>
auto Runnable(const Registry& registry) {
  std::vector<const typename Registry::KernelType*> kernels;
  for (auto* kernel : registry.kernels()) {
    if (!kernel->CheckDevice(DetectCpuCappedAt(Isa::kAmx))) kernels.push_back(kernel);
  }
  return kernels;
}

const DataType kPlain[] = {DataType::kF32, DataType::kF16, DataType::kBF16};

TEST(CopyKernels, convert_every_pair_as_the_oracle_does_with_tails_and_odd_addresses) {
  CopyRegistry registry;
  AddCopy(registry);
  for (DataType from : kPlain) {
    for (DataType to : kPlain) {
      for (std::int64_t cols : {1, 7, 8, 31, 100}) {
        const std::int64_t rows = 5, src_row = cols + 3, dst_row = cols + 2;
        Random random(static_cast<std::uint64_t>(cols));
        test::GuardedBytes src(BytesOf(from, src_row * rows), 2), want(BytesOf(to, dst_row * rows)), got(BytesOf(to, dst_row * rows), 2);
        std::vector<float> values(static_cast<std::size_t>(src_row * rows));
        for (float& x : values) x = static_cast<float>(random.Uniform(-70000, 70000) * std::pow(10.0, random.Uniform(-9, 0)));
        ASSERT_TRUE(EncodeRow(from, values.data(), src_row * rows, src.data()));
        auto args = [&](void* dst) {
          return CopyArgs{TensorView{src.data(), {cols, rows, 1, 1}, {1, src_row, 0, 0}, from},
                          TensorView{dst, {cols, rows, 1, 1}, {1, dst_row, 0, 0}, to}};
        };
        ASSERT_TRUE(ReferenceCopy(args(want.data())));
        for (const CopyKernel* kernel : Runnable(registry)) {
          if (kernel->IsFeasible({.type_src = from, .type_dst = to})) continue;
          got.Poison();
          ASSERT_TRUE(kernel->Launch(args(got.data()), Stream{}));
          EXPECT_EQ(got.Damage(), "");
          EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0)
              << kernel->name() << " " << DataTypeName(from) << " to " << DataTypeName(to) << " cols " << cols;
        }
      }
    }
  }
}

TEST(CopyKernels, round_f16_at_its_edges_as_the_oracle_does) {
  CopyRegistry registry;
  AddCopy(registry);
  std::vector<float> src = {0.0f, -0.0f, 65504.0f, 65519.9f, 65520.0f, -1e30f, 6e-8f, 2.98e-8f, 2.99e-8f, 1e-40f, INFINITY, -INFINITY,
                            1.00048828125f, 1.00146484375f, 6.1e-5f, 3.0f};
  std::vector<std::uint16_t> want(src.size()), got(src.size());
  auto args = [&](std::vector<std::uint16_t>& dst) {
    const auto n = static_cast<std::int64_t>(src.size());
    return CopyArgs{Contiguous(src.data(), DataType::kF32, {n, 1, 1, 1}), Contiguous(dst.data(), DataType::kF16, {n, 1, 1, 1})};
  };
  ASSERT_TRUE(ReferenceCopy(args(want)));
  for (const CopyKernel* kernel : Runnable(registry)) {
    ASSERT_TRUE(kernel->Launch(args(got), Stream{}));
    EXPECT_EQ(got, want) << kernel->name();
  }
}

TEST(KvScatterKernels, write_each_head_to_its_place_and_nothing_else) {
  KvScatterRegistry registry;
  AddKvScatter(registry);
  constexpr std::int64_t kHeadDim = 64, kHeads = 3, kContext = 9, kSlots = 2, kRows = 4, kRow = 300;
  Random random(5);
  std::vector<float> src(kRow * kRows);
  for (float& x : src) x = static_cast<float>(random.Uniform(-3, 3));
  std::vector<std::int32_t> positions = {8, 0, 4, 5}, slots = {1, 0, 1, 1};
  for (DataType type : {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ8_0}) {
    const std::size_t bytes = BytesOf(type, kHeadDim * kHeads * kContext * kSlots);
    test::GuardedBytes want(bytes), got(bytes);
    auto args = [&](void* cache) {
      return KvScatterArgs{TensorView{src.data() + 10, {kHeadDim, kHeads, kRows, 1}, {1, kHeadDim, kRow, 0}, DataType::kF32},
                           Contiguous(cache, type, {kHeadDim, kHeads, kContext, kSlots}),
                           Contiguous(positions.data(), DataType::kI32, {kRows, 1, 1, 1}),
                           Contiguous(slots.data(), DataType::kI32, {kRows, 1, 1, 1})};
    };
    ASSERT_TRUE(ReferenceKvScatter(args(want.data())));
    for (const KvScatterKernel* kernel : Runnable(registry)) {
      got.Poison();
      ASSERT_TRUE(kernel->Launch(args(got.data()), Stream{}));
      EXPECT_EQ(got.Damage(), "");
      EXPECT_EQ(std::memcmp(got.data(), want.data(), bytes), 0) << kernel->name() << " " << DataTypeName(type);
    }
  }
}

TEST(KvScatterKernels, refuse_a_place_outside_the_cache_before_writing) {
  KvScatterRegistry registry;
  AddKvScatter(registry);
  std::vector<float> src(2 * 32, 1.0f), cache(32 * 4 * 2, -7.0f);
  std::vector<std::int32_t> positions = {0, 4}, slots = {0, 0};
  KvScatterArgs args{Contiguous(src.data(), DataType::kF32, {32, 1, 2, 1}), Contiguous(cache.data(), DataType::kF32, {32, 1, 4, 2}),
                     Contiguous(positions.data(), DataType::kI32, {2, 1, 1, 1}),
                     Contiguous(slots.data(), DataType::kI32, {2, 1, 1, 1})};
  for (const KvScatterKernel* kernel : Runnable(registry)) {
    positions[1] = 4;
    Status status = kernel->Launch(args, Stream{});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "kv scatter: positions[1] = 4, must be 0 to 3");
    positions[1] = 1, slots[1] = -1;
    status = kernel->Launch(args, Stream{});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "kv scatter: slots[1] = -1, must be 0 to 1");
    slots[1] = 0;
    EXPECT_EQ(cache[0], -7.0f);
  }
}

}  // namespace
}  // namespace tilewright
