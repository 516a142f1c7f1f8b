#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"
#include "engine/verified_test_util.h"

namespace tilewright::embedding {
namespace {

using EmbeddingTest = test::OpTest<Op>;
using test::Rows;
TensorView Ints(std::vector<std::int32_t>& values) {
  return Contiguous(values.data(), DataType::kI32,
                    {static_cast<std::int64_t>(values.size()), 1, 1, 1});
}

std::vector<DataType> Types() {
  std::vector<DataType> types = {DataType::kF32, DataType::kF16, DataType::kBF16};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  return types;
}

TEST_F(EmbeddingTest, EveryNumberOfThreadsGivesTheSameBits) {
  std::vector<std::int32_t> ids(300);
  for (std::int32_t r = 0; r < 300; ++r) ids[static_cast<std::size_t>(r)] = r * 7 % 11;
  std::vector<float> out(576 * 300);
  for (const DataType type : {DataType::kF32, DataType::kQ4_0}) {
    test::RandomMatrix table(type, 11, 576, 7, 1.0, 576);
    const Args args{Rows(table.bytes.data(), type, 576, 11, 576), Ints(ids),
                    Rows(out.data(), DataType::kF32, 576, 300, 576)};
    for (Kernel* kernel : Kernels())
      test::ExpectSameBitsOnAnyThreads<Op>(*kernel, args, out.data(), out.size() * sizeof(float));
  }
}

TEST_F(EmbeddingTest, EveryKernelGathersEveryTypeExactly) {
  const auto pool = MakeThreadPool(3);
  std::uint64_t seed = 400;
  for (const DataType type : Types()) {
    const std::int64_t block = GetTypeInfo(type).block_elements;
    for (const std::int64_t hidden :
         {block, 3 * block, block == 1 ? std::int64_t{77} : 4 * block}) {
      const std::int64_t entries = 11, ld = hidden + 2 * block, out_ld = hidden + 5;
      test::RandomMatrix table(type, entries, hidden, ++seed, 1.0, ld);
      std::vector<std::int32_t> ids;
      for (std::int32_t r = 0; r < 500; ++r) ids.push_back(r * 7 % 11);
      const auto rows = static_cast<std::int64_t>(ids.size());
      for (Kernel* kernel : Kernels()) {
        SCOPED_TRACE(std::string(kernel->name()) + " " + std::string(DataTypeName(type)) +
                     " hidden " + std::to_string(hidden));
        test::Guarded<float> out(static_cast<std::size_t>(out_ld * rows), 4);
        ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                                   {Rows(table.bytes.data(), type, hidden, entries, ld), Ints(ids),
                                    Rows(out.data(), DataType::kF32, hidden, rows, out_ld)},
                                   Stream{pool.get()}));
        EXPECT_EQ(out.Damage(), "");
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t i = 0; i < out_ld; ++i) {
            const float got = out[static_cast<std::size_t>(r * out_ld + i)];
            if (i >= hidden) {
              ASSERT_TRUE(std::isnan(got)) << "padding was written";
            } else {
              const double exact = table.values[static_cast<std::size_t>(
                  ids[static_cast<std::size_t>(r)] * hidden + i)];
              ASSERT_EQ(got, static_cast<float>(exact)) << r << " " << i;
            }
          }
        }
        if (test::IsListed(kernel->info())) {
          test::NoteVerified({.operation = "embedding",
                              .subject = DataTypeName(type),
                              .device = test::LevelOf(kernel->info(), device_),
                              .how = "f32"});
        }
      }
    }
  }
}

TEST_F(EmbeddingTest, ResultsOfOtherTypesAreRoundedOnce) {
  std::vector<std::int32_t> ids = {2, -1, 0};
  for (const DataType type : Types()) {
    const std::int64_t block = GetTypeInfo(type).block_elements;
    const std::int64_t hidden = block == 1 ? 300 : block < 100 ? 9 * block : 2 * block;
    test::RandomMatrix table(type, 3, hidden, 450, 1.0, hidden);
    for (Kernel* kernel : Kernels()) {
      if (kernel->info().reference) continue;  // rounds from f64
      for (const DataType out : test::kFloatTypes) {
        SCOPED_TRACE(std::string(kernel->name()) + " " + std::string(DataTypeName(type)) + " to " +
                     std::string(DataTypeName(out)));
        std::vector<float> result(static_cast<std::size_t>(3 * hidden));
        test::GuardedBytes got(BytesOf(out, 3 * hidden));
        Args args{Rows(table.bytes.data(), type, hidden, 3, hidden), Ints(ids),
                  Rows(result.data(), DataType::kF32, hidden, 3, hidden)};
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
        args.out = Rows(got.data(), out, hidden, 3, hidden);
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
        const test::GuardedBytes want = test::Encoded(out, result);
        EXPECT_TRUE(test::BitwiseEqual(got.data(), want.data(), want.size()));
        EXPECT_EQ(got.Damage(), "");
      }
    }
  }
}

TEST_F(EmbeddingTest, RandomBitsDecodeAsDecodeRowDecodesThem) {
  // Every code, every scale bit pattern sooner or later, NaN and infinite scales among them.
  Random random(9);
  for (const DataType type : Types()) {
    const std::int64_t hidden = 256 * 64;
    test::GuardedBytes table(BytesOf(type, hidden), 1);
    for (std::size_t i = 0; i < table.size(); ++i)
      static_cast<unsigned char*>(table.data())[i] = static_cast<unsigned char>(random.Next());
    std::vector<float> want(static_cast<std::size_t>(hidden)), got(want.size());
    ASSERT_TRUE(DecodeRow(type, table.data(), hidden, want.data()));
    std::vector<std::int32_t> ids = {0};
    for (Kernel* kernel : Kernels()) {
      if (kernel->info().reference || GetTypeInfo(type).block_elements == 1)
        continue;  // plain types want their alignment
      ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                                 {Rows(table.data(), type, hidden, 1, hidden), Ints(ids),
                                  Rows(got.data(), DataType::kF32, hidden, 1, hidden)},
                                 Stream{}));
      for (std::size_t i = 0; i < want.size(); ++i) {
        if (std::isnan(want[i])) {
          ASSERT_TRUE(std::isnan(got[i]))
              << kernel->name() << " " << DataTypeName(type) << " " << i;
        } else {
          ASSERT_EQ(got[i], want[i]) << kernel->name() << " " << DataTypeName(type) << " " << i;
        }
      }
    }
  }
}

TEST_F(EmbeddingTest, AnIdBeyondTheTableIsNamedBeforeAnythingIsWritten) {
  std::vector<float> table(12), out(12, 5.0f);
  for (const std::int32_t bad : {3, -2}) {
    std::vector<std::int32_t> ids = {0, 2, bad};
    for (Kernel* kernel : Kernels()) {
      const Status status = LaunchOnce<Op>(*kernel,
                                           {Rows(table.data(), DataType::kF32, 4, 3, 4), Ints(ids),
                                            Rows(out.data(), DataType::kF32, 4, 3, 4)},
                                           Stream{});
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_NE(status.error().message.find("ids[2] = " + std::to_string(bad)), std::string::npos);
      EXPECT_NE(status.error().message.find("3 entries"), std::string::npos);
      EXPECT_EQ(out, std::vector<float>(12, 5.0f)) << kernel->name();
    }
  }
}

TEST_F(EmbeddingTest, ViewsThatDoNotFitAreRefused) {
  std::vector<float> data(256);
  std::vector<std::int32_t> ids = {0};
  EXPECT_FALSE(DescOf(Args{Rows(data.data(), DataType::kF32, 4, 3, 4), Ints(ids),
                           Rows(data.data(), DataType::kF32, 5, 1, 5)},
                      CallTerms{}));
  EXPECT_FALSE(DescOf(Args{Rows(data.data(), DataType::kF32, 4, 3, 4), Ints(ids),
                           Rows(data.data(), DataType::kF32, 4, 2, 4)},
                      CallTerms{}))
      << "more rows than ids";
  EXPECT_FALSE(DescOf(Args{Rows(data.data(), DataType::kQ4_0, 48, 1, 48), Ints(ids),
                           Rows(data.data(), DataType::kF32, 48, 1, 48)},
                      CallTerms{}));
}

TEST_F(EmbeddingTest, TheWidestKernelOfTheDeviceIsChosenAndTheReferenceTakesOtherTypes) {
  DeviceSpec device;
  device.features = kFeatureAvx2 | kFeatureAvx512;
  Desc desc{.type_table = DataType::kQ4_1, .rows = 1, .hidden = 576};
  EXPECT_EQ(Choose(Feasible(*Validate(desc), registry_, device), nullptr).value().kernel().name(),
            "embedding.f32.avx512");
  EXPECT_EQ(
      Choose(Feasible(*Validate(desc), registry_, DeviceSpec{}), nullptr).value().kernel().name(),
      "embedding.f32.scalar");
  desc.type_table = DataType::kF8E4M3;
  EXPECT_EQ(Choose(Feasible(*Validate(desc), registry_, device), nullptr).value().kernel().name(),
            "embedding.any.reference");
}

TEST_F(EmbeddingTest, ARowOfPaddingBecomesZerosAndLeavesTheOthersAlone) {
  std::vector<float> table = {1, 2, 3, 4, 5, 6};
  std::vector<std::int32_t> ids = {2, -1, 0};
  for (Kernel* kernel : Kernels()) {
    std::vector<float> out(9, 7.0f);
    ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                               {Rows(table.data(), DataType::kF32, 2, 3, 2), Ints(ids),
                                Rows(out.data(), DataType::kF32, 2, 3, 3)},
                               Stream{}));
    EXPECT_EQ(out, (std::vector<float>{5, 6, 7, 0, 0, 7, 1, 2, 7})) << kernel->name();
  }
}

TEST_F(EmbeddingTest, EveryFieldOfTheProblemIsInItsKey) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .hidden = 576});
}

TEST_F(EmbeddingTest, ProblemsWithoutElementsOrWithPartOfABlockAreRefused) {
  EXPECT_FALSE(Validate(Desc{.rows = 0}));
  EXPECT_FALSE(Validate(Desc{.hidden = 0}));
  const auto part = Validate(Desc{.type_table = DataType::kQ6_K, .hidden = 576});
  ASSERT_FALSE(part);
  EXPECT_NE(part.error().message.find("hidden = 576"), std::string::npos);
}

}  // namespace
}  // namespace tilewright::embedding
