#include "ops/top_k/top_k.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/test_util.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"
#include "ops/top_k/cuda/top_k_cases.h"

namespace tilewright::top_k {
namespace {

using TopKTest = test::OpTest<Op>;
using test::Rows;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_F(TopKTest, EveryKernelAgreesWithTheOracle) {
  const auto pool = MakeThreadPool(3);
  for (const DataType type : test::kFloatTypes) {
    std::vector<test::ArenaCase<Args>> cases = CudaCases(type);
    for (const std::int64_t cols : {2, 31, 33, 127, 128, 129, 577, 49152})
      cases.push_back(MakeCase(type, {cols, 3, 40, CaseValues::kNormal, 1, 2}, true, 3));
    for (const auto& one : cases) {
      for (Kernel* kernel : Kernels()) {
        EXPECT_EQ(test::RunCase(one, &Reference,
                                [&](const auto& call, test::Arena& arena) {
                                  return LaunchOnce<Op>(*kernel, call.At(arena.base()),
                                                        Stream{pool.get()});
                                }),
                  "")
            << kernel->name();
      }
    }
  }
}

TEST_F(TopKTest, TheOracleOrdersAsASamplerDoes) {
  double in[] = {1, 3, -INFINITY, 3, -0.0, 0};
  std::vector<std::int32_t> ids(7);
  std::vector<double> values(7);
  const Args args{.in = Rows(in, DataType::kF64, 6, 1, 6),
                  .ids = Rows(ids.data(), DataType::kI32, 7, 1, 7),
                  .values = Rows(values.data(), DataType::kF64, 7, 1, 7)};
  ASSERT_TRUE(Reference(args));
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 3, 0, 4, 5, -1, -1}));
  EXPECT_EQ(values, (std::vector<double>{3, 3, 1, 0, 0, -INFINITY, -INFINITY}));
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    in[2] = bad;
    ASSERT_TRUE(Reference(args));
    EXPECT_EQ(ids, std::vector<std::int32_t>(7, -1));
    for (const double value : values) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_F(TopKTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  constexpr std::int64_t kCols = 70000, kRows = 20, kK = 5;
  std::vector<float> in = test::RandomFloats(kCols * kRows, 3);
  std::vector<std::int32_t> ids(kK * kRows);
  const Args args{.in = Rows(in.data(), DataType::kF32, kCols, kRows, kCols),
                  .ids = Rows(ids.data(), DataType::kI32, kK, kRows, kK),
                  .values = {}};
  for (Kernel* kernel : Kernels()) {
    test::ExpectSameBitsOnAnyThreads<Op>(*kernel, args, ids.data(),
                                         ids.size() * sizeof(std::int32_t));
  }
}

/// Fewer rows than workers are cut into pieces of columns; equal values stand on both sides of cuts.
TEST_F(TopKTest, RowsInPiecesAreAsWholeOnes) {
  constexpr std::int64_t kCols = 49157;
  const auto pool = MakeThreadPool(7);
  for (const std::int64_t rows : {1, 2, 5}) {
    for (const std::int64_t k : {1, 3, 64}) {
      for (const bool bad : {false, true}) {
        std::vector<float> in = test::RandomFloats(static_cast<std::size_t>(kCols * rows), 11);
        for (float& value : in) value = std::floor(4 * value);
        // A row with fewer values than are asked for, in two pieces.
        for (std::int64_t i = 0; i < kCols; ++i)
          if (i != 17 && i != kCols - 1) in[static_cast<std::size_t>(i)] = -kInfinity;
        if (bad) in[in.size() - 1] = NAN;
        std::vector<std::int32_t> ids(static_cast<std::size_t>(k * rows), 7), expected = ids;
        std::vector<float> values(ids.size()), expected_values = values;
        const auto args = [&](auto& to_ids, auto& to_values) {
          return Args{.in = Rows(in.data(), DataType::kF32, kCols, rows, kCols),
                      .ids = Rows(to_ids.data(), DataType::kI32, k, rows, k),
                      .values = Rows(to_values.data(), DataType::kF32, k, rows, k)};
        };
        ASSERT_TRUE(Reference(args(expected, expected_values)));
        for (Kernel* kernel : Kernels()) {
          ASSERT_TRUE(LaunchOnce<Op>(*kernel, args(ids, values), Stream{pool.get()}));
          EXPECT_EQ(ids, expected) << kernel->name() << " " << rows << " " << k;
          EXPECT_THAT(values, testing::Pointwise(testing::NanSensitiveFloatEq(), expected_values));
        }
      }
    }
  }
}

TEST_F(TopKTest, EveryFieldOfTheProblemIsInItsKey) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .cols = 576, .k = 4});
}

TEST_F(TopKTest, ViewsThatDoNotFitAreRefusedByName) {
  float in[8] = {}, values[2];
  std::int32_t ids[2];
  const Args good{.in = Rows(in, DataType::kF32, 4, 2, 4),
                  .ids = Rows(ids, DataType::kI32, 1, 2, 1),
                  .values = Rows(values, DataType::kF32, 1, 2, 1)};
  EXPECT_TRUE(LaunchOnce<Op>(*registry_.kernels()[0], good, Stream{}));
  const auto refused = [&](auto change, const char* words) {
    Args args = good;
    change(args);
    const auto desc = DescOf(args, {});
    ASSERT_FALSE(desc) << words;
    EXPECT_EQ(desc.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(desc.error().message.find(words), std::string::npos) << desc.error().message;
  };
  refused([](Args& a) { a.ids.shape[1] = 1; }, "ids");
  refused([](Args& a) { a.ids.dtype = DataType::kF32; }, "ids are f32, must be i32");
  refused([](Args& a) { a.ids.data = nullptr; }, "ids");
  refused([](Args& a) { a.in.data = nullptr; }, "in");
  refused([](Args& a) { a.values.shape[1] = 1; }, "values");
  refused([](Args& a) { a.in.shape[2] = 2; }, "in");
}

TEST_F(TopKTest, TheBestIsHandedOverToTheNextPassAndTheHost) {
  float in[] = {1, 5, 2, 9, 0, 3, 0, 0, 7};
  std::int32_t ids[3], tokens[] = {-7, -7, -7}, positions[] = {4, -1, 0}, turns[] = {0, 0, 1};
  std::int32_t found[2][3] = {{-7, -7, -7}, {-7, -7, -7}};
  const auto ints = [](std::int32_t* data, std::int64_t turns_there_are = 1) {
    return Contiguous(data, DataType::kI32, {3, turns_there_are, 1, 1});
  };
  const Args args{.in = Rows(in, DataType::kF32, 3, 3, 3),
                  .ids = Rows(ids, DataType::kI32, 1, 3, 1),
                  .values = {},
                  .tokens = ints(tokens),
                  .positions = ints(positions),
                  .turns = ints(turns),
                  .found = ints(found[0], 2)};
  ASSERT_TRUE(Reference(args));
  EXPECT_THAT(ids, testing::ElementsAre(1, 0, 2));
  EXPECT_THAT(tokens, testing::ElementsAre(1, -7, 2)) << "the second row is padding";
  EXPECT_THAT(positions, testing::ElementsAre(5, -1, 1));
  EXPECT_THAT(turns, testing::ElementsAre(1, 0, 0));
  EXPECT_THAT(found[0], testing::ElementsAre(1, -7, -7));
  EXPECT_THAT(found[1], testing::ElementsAre(-7, -7, 2));

  const auto refused = [&](auto change, const char* words) {
    Args wrong = args;
    change(wrong);
    const auto desc = DescOf(wrong, {});
    ASSERT_FALSE(desc) << words;
    EXPECT_THAT(desc.error().message, testing::HasSubstr(words));
  };
  refused([](Args& a) { a.tokens.data = nullptr; }, "top_k: tokens");
  refused([](Args& a) { a.positions.shape[0] = 2; }, "top_k: positions");
  refused([](Args& a) { a.turns.dtype = DataType::kF32; }, "top_k: turns");
  refused([](Args& a) { a.found.shape[1] = 0; }, "top_k: found");
  refused([](Args& a) { a.ids.shape[0] = 2; }, "k = 2");
}

TEST_F(TopKTest, TheWidestKernelOfTheDeviceIsChosenAndTheReferenceTakesTheRest) {
  const Desc desc{.rows = 4, .cols = 49152, .k = 40};
  for (const auto& [isa, features, name] :
       {std::tuple{Isa::kScalar, 0u, "top_k.f32.scalar"},
        std::tuple{Isa::kAvx2, std::uint32_t{kFeatureAvx2}, "top_k.f32.avx2"},
        std::tuple{Isa::kAvx512, kFeatureAvx2 | kFeatureAvx512, "top_k.f32.avx512"}}) {
    DeviceSpec device;
    device.isa = isa;
    device.features = features;
    EXPECT_EQ(Choose(Feasible(*Validate(desc), registry_, device), nullptr).value().kernel().name(),
              name);
  }
  const auto chosen = [&](auto change) {
    Desc other = desc;
    change(other);
    const auto choice = Choose(Feasible(*Validate(other), registry_, device_), nullptr);
    return choice ? std::string(choice->kernel().name()) : std::string("none");
  };
  EXPECT_EQ(chosen([](Desc& d) { d.k = kMostK + 1; }), "top_k.any.reference");
  EXPECT_EQ(chosen([](Desc& d) { d.type_in = DataType::kF64; }), "top_k.any.reference");
  EXPECT_EQ(chosen([](Desc& d) { d.type_values = DataType::kF64; }), "top_k.any.reference");
  EXPECT_EQ(chosen([](Desc& d) { d.type_in = DataType::kQ4_0; }), "none");
  EXPECT_FALSE(Validate({.rows = 1, .cols = 5, .k = 0}));
}

TEST_F(TopKTest, EveryKernelHasAnIdAndAFingerprint) {
  for (Kernel* kernel : registry_.kernels())
    EXPECT_FALSE(kernel->info().fingerprint.empty()) << kernel->name();
  EXPECT_EQ(registry_.kernels().size(), 4u);
}

TEST_F(TopKTest, ABadValueInTheTailOrInABlockIsFound) {
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{100}, std::size_t{1023}, std::size_t{1030}}) {
    std::vector<float> in(1031, 1.0f);
    in[at] = at % 2 == 0 ? NAN : kInfinity;
    for (Kernel* kernel : Kernels()) {
      std::int32_t id = 7;
      ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                                 {.in = Rows(in.data(), DataType::kF32, 1031, 1, 1031),
                                  .ids = Rows(&id, DataType::kI32, 1, 1, 1),
                                  .values = {}},
                                 Stream{}));
      EXPECT_EQ(id, -1) << kernel->name() << " " << at;
    }
  }
}

}  // namespace
}  // namespace tilewright::top_k
