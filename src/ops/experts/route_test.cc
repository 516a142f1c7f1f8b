#include "ops/experts/route.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "core/arena_test_util.h"
#include "core/test_util.h"
#include "core/text.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"

namespace tilewright::route {
namespace {

using RouteTest = test::OpTest<Op>;
using test::Rows;

/// Logits of `rows` rows, and room for what is made of them.
struct Routing {
  Routing(int experts, int used, int rows, std::uint64_t seed)
      : logits(test::RandomFloats(static_cast<std::size_t>(experts * rows), seed)),
        offsets(static_cast<std::size_t>(experts + 1)),
        sources(static_cast<std::size_t>(used * rows)),
        places(sources.size()),
        experts_of(sources.size()),
        weights(sources.size()),
        args{.logits = Rows(logits.data(), DataType::kF32, experts, rows, experts),
             .offsets = Rows(offsets.data(), DataType::kI32, experts + 1, 1, experts + 1),
             .sources = Rows(sources.data(), DataType::kI32, used * rows, 1, used * rows),
             .places = Rows(places.data(), DataType::kI32, used, rows, used),
             .weights = Rows(weights.data(), DataType::kF32, used, rows, used),
             .experts = Rows(experts_of.data(), DataType::kI32, used * rows, 1, used * rows)} {}

  std::vector<float> logits;
  std::vector<std::int32_t> offsets, sources, places, experts_of;
  std::vector<float> weights;
  Args args;
};

TEST_F(RouteTest, EveryKernelAgreesWithTheOracle) {
  const auto pool = MakeThreadPool(3);
  int number = 0;
  for (const auto& [experts, used, rows] :
       {std::array{2, 1, 1}, std::array{5, 5, 3}, std::array{8, 2, 17}, std::array{7, 3, 64},
        std::array{128, 8, 513}, std::array{60, 4, 33}, std::array{256, 1, 40}}) {
    for (const bool normalise : {true, false}) {
      test::ArenaCase<Args> one{
          Format("{} of {}, {} rows", used, experts, rows), test::Arena(1 << 20), {}, {}, {}};
      const std::int64_t e = experts, u = used, m = rows;
      one.args = {
          .logits = one.arena.Random(DataType::kF32, {e, m, 1, 1}, {1, e + 3, (e + 3) * m, 0},
                                     77u + ++number),
          .offsets = one.arena.Add(DataType::kI32, {e + 1, 1, 1, 1}, {1, e + 1, 0, 0}),
          .sources = one.arena.Add(DataType::kI32, {u * m, 1, 1, 1}, {1, u * m, 0, 0}),
          .places = one.arena.Add(DataType::kI32, {u, m, 1, 1}, {1, u, u * m, u * m}),
          .weights = one.arena.Add(DataType::kF32, {u, m, 1, 1}, {1, u + 2, (u + 2) * m, 0}),
          .experts = {},
          .normalise = normalise,
          .scale = 1.5f};
      if (number % 2 == 0) {
        one.args.experts = one.arena.Add(DataType::kI32, {u * m, 1, 1, 1}, {1, u * m, 0, 0});
      }
      one.views = {&Args::logits, &Args::offsets, &Args::sources, &Args::places, &Args::weights};
      one.outputs = {&Args::offsets, &Args::sources, &Args::places, &Args::weights};
      if (one.args.experts.data != nullptr) {
        one.views.push_back(&Args::experts);
        one.outputs.push_back(&Args::experts);
      }
      one.relative = 64 * 0x1p-24;
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

TEST_F(RouteTest, EveryPairHasAPlaceAmongThoseOfItsExpertInTheOrderOfRows) {
  Routing r(16, 4, 200, 5);
  for (Kernel* kernel : Kernels()) {
    ASSERT_TRUE(LaunchOnce<Op>(*kernel, r.args, Stream{}));
    EXPECT_EQ(r.offsets.front(), 0);
    EXPECT_EQ(r.offsets.back(), 800);
    std::set<std::int32_t> places;
    for (std::size_t row = 0; row < 200; ++row) {
      double sum = 0;
      for (std::size_t j = 0; j < 4; ++j) {
        const auto place = static_cast<std::size_t>(r.places[row * 4 + j]);
        ASSERT_LT(place, 800u);
        places.insert(r.places[row * 4 + j]);
        EXPECT_EQ(r.sources[place], static_cast<std::int32_t>(row));
        sum += static_cast<double>(r.weights[row * 4 + j]);
      }
      EXPECT_NEAR(sum, 1, 1e-6);
    }
    EXPECT_EQ(places.size(), 800u);
    for (std::size_t e = 0; e < 16; ++e) {
      for (auto i = r.offsets[e] + 1; i < r.offsets[e + 1]; ++i)
        EXPECT_LT(r.sources[static_cast<std::size_t>(i - 1)],
                  r.sources[static_cast<std::size_t>(i)]);
      for (auto i = r.offsets[e]; i < r.offsets[e + 1]; ++i)
        EXPECT_EQ(r.experts_of[static_cast<std::size_t>(i)], static_cast<std::int32_t>(e));
    }
  }
}

TEST_F(RouteTest, EqualLogitsGoToTheFirstExpertsAndAHotOneTakesEveryRow) {
  Routing r(6, 2, 10, 5);
  std::fill(r.logits.begin(), r.logits.end(), 0.25f);
  for (Kernel* kernel : Kernels()) {
    ASSERT_TRUE(LaunchOnce<Op>(*kernel, r.args, Stream{}));
    EXPECT_EQ(r.offsets, (std::vector<std::int32_t>{0, 10, 20, 20, 20, 20, 20})) << kernel->name();
    for (const float weight : r.weights) EXPECT_FLOAT_EQ(weight, 0.5f);
  }
  for (std::size_t row = 0; row < 10; ++row) r.logits[row * 6 + 4] = 9;
  for (Kernel* kernel : Kernels()) {
    ASSERT_TRUE(LaunchOnce<Op>(*kernel, r.args, Stream{}));
    EXPECT_EQ(r.offsets, (std::vector<std::int32_t>{0, 10, 10, 10, 10, 20, 20})) << kernel->name();
    EXPECT_EQ(r.places[0], 10) << "its best expert is the hot one";
  }
}

TEST_F(RouteTest, ARowWithoutAnOrderGoesSomewhereWithNaNForWeights) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Routing r(5, 3, 3, 8);
    for (std::size_t e = 0; e < 5; ++e) r.logits[5 + e] = bad;
    for (Kernel* kernel : Kernels()) {
      ASSERT_TRUE(LaunchOnce<Op>(*kernel, r.args, Stream{}));
      EXPECT_EQ(r.offsets.back(), 9) << kernel->name();
      EXPECT_EQ(std::set<std::int32_t>(r.places.begin(), r.places.end()).size(), 9u);
      for (std::size_t i = 0; i < 9; ++i)
        EXPECT_EQ(std::isnan(r.weights[i]), i / 3 == 1) << kernel->name() << ", " << i;
    }
  }
}

TEST_F(RouteTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  Routing r(128, 8, 600, 6);
  for (Kernel* kernel : Kernels()) {
    test::ExpectSameBitsOnAnyThreads<Op>(*kernel, r.args, r.weights.data(),
                                         r.weights.size() * sizeof(float));
  }
}

TEST_F(RouteTest, EveryFieldOfTheProblemIsInItsKey) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .experts = 8, .used = 2});
}

TEST_F(RouteTest, ViewsThatDoNotFitAreRefusedByName) {
  const auto refused = [&](auto change, const char* words) {
    Routing r(4, 2, 3, 1);
    change(r.args);
    const auto desc = DescOf(r.args, {});
    ASSERT_FALSE(desc) << words;
    EXPECT_EQ(desc.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(desc.error().message.find(words), std::string::npos) << desc.error().message;
  };
  refused([](Args& a) { a.logits.data = nullptr; }, "logits");
  refused([](Args& a) { a.weights.shape[1] = 2; }, "weights");
  refused([](Args& a) { a.offsets.shape[0] = 4; }, "offsets");
  refused([](Args& a) { a.sources.dtype = DataType::kF32; }, "sources");
  refused([](Args& a) { a.places.stride[1] = 5; }, "places");
  refused([](Args& a) { a.experts.shape[0] = 5; }, "experts");
  EXPECT_FALSE(Validate({.rows = 1, .experts = 4, .used = 5}));
  EXPECT_FALSE(Validate({.rows = 1, .experts = 4, .used = 0}));
}

}  // namespace
}  // namespace tilewright::route
