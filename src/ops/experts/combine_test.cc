#include "ops/experts/combine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "core/arena_test_util.h"
#include "core/test_util.h"
#include "core/text.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"

namespace tilewright::combine {
namespace {

using CombineTest = test::OpTest<Op>;
using test::Rows;

std::vector<std::int32_t> ShuffledPlaces(std::int64_t pairs, std::uint64_t seed) {
  std::vector<std::int32_t> places(static_cast<std::size_t>(pairs));
  std::iota(places.begin(), places.end(), 0);
  Random random(seed);
  for (std::size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[random.Below(i)]);
  return places;
}

test::ArenaCase<Args> MakeCase(DataType type, std::int64_t n, std::int64_t used, std::int64_t m,
                               bool shared) {
  test::ArenaCase<Args> one{
      Format("{} {} x {} of {}{}", DataTypeName(type), n, m, used, shared ? ", shared" : ""),
      test::Arena(std::size_t{3} << 20),
      {},
      {},
      {}};
  const auto matrix = [&](std::int64_t cols, std::int64_t rows, std::uint64_t seed) {
    return one.arena.Random(type, {cols, rows, 1, 1}, {1, cols + 3, (cols + 3) * rows, 0}, seed);
  };
  one.args = {.x = matrix(n, used * m, 3),
              .places = one.arena.Ints(ShuffledPlaces(used * m, 4)),
              .weights = matrix(used, m, 5),
              .shared = {},
              .gate = {},
              .out = one.arena.Add(type, {n, m, 1, 1}, {1, n + 5, (n + 5) * m, 0})};
  one.args.places.shape = {used, m, 1, 1};
  one.args.places.stride = {1, used, used * m, used * m};
  if (shared) one.args.shared = matrix(n, m, 6), one.args.gate = matrix(1, m, 7);
  one.views = {&Args::x, &Args::places, &Args::weights, &Args::shared, &Args::gate, &Args::out};
  one.outputs = {&Args::out};
  const double epsilon = type == DataType::kF32   ? 0x1p-24
                         : type == DataType::kF16 ? 0x1p-10
                                                  : 0x1p-7;
  one.relative = epsilon, one.absolute = static_cast<double>(used + 2) * 16 * 0x1p-24;
  return one;
}

TEST_F(CombineTest, EveryKernelAgreesWithTheOracle) {
  const auto pool = MakeThreadPool(3);
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBF16}) {
    for (const std::int64_t n : {1, 7, 33, 1024, 2049}) {
      for (const auto& [used, m] : {std::array{1, 1}, std::array{2, 5}, std::array{8, 12}}) {
        for (const bool shared : {false, true}) {
          const test::ArenaCase<Args> one = MakeCase(type, n, used, m, shared);
          for (Kernel* kernel : Kernels()) {
            if (kernel->IsFeasible(DescOf(one.args, {}).value())) continue;
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
  }
}

/// Operands of f32 without padding.
struct Sum {
  Sum(int n, int used, int m)
      : x(test::RandomFloats(static_cast<std::size_t>(n * used * m), 1)),
        weights(test::RandomFloats(static_cast<std::size_t>(used * m), 2)),
        shared(test::RandomFloats(static_cast<std::size_t>(n * m), 3)),
        gate(test::RandomFloats(static_cast<std::size_t>(m), 4)),
        out(static_cast<std::size_t>(n * m)),
        places(ShuffledPlaces(used * m, 5)),
        args{.x = Rows(x.data(), DataType::kF32, n, used * m, n),
             .places = Rows(places.data(), DataType::kI32, used, m, used),
             .weights = Rows(weights.data(), DataType::kF32, used, m, used),
             .shared = Rows(shared.data(), DataType::kF32, n, m, n),
             .gate = Rows(gate.data(), DataType::kF32, 1, m, 1),
             .out = Rows(out.data(), DataType::kF32, n, m, n)} {}

  std::vector<float> x, weights, shared, gate, out;
  std::vector<std::int32_t> places;
  Args args;
};

TEST_F(CombineTest, APlaceThatIsNoPairIsRefusedAndNothingIsWritten) {
  for (const std::int32_t bad : {-1, 30, std::numeric_limits<std::int32_t>::max()}) {
    Sum sum(16, 3, 10);
    sum.places[17] = bad;
    std::fill(sum.out.begin(), sum.out.end(), 7.0f);
    for (Kernel* kernel : Kernels()) {
      const Status status = LaunchOnce<Op>(*kernel, sum.args, Stream{});
      ASSERT_FALSE(status) << kernel->name();
      EXPECT_NE(status.error().message.find("places[17]"), std::string::npos);
      EXPECT_TRUE(std::all_of(sum.out.begin(), sum.out.end(), [](float v) { return v == 7.0f; }));
    }
  }
}

TEST_F(CombineTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  Sum sum(2048, 8, 200);
  for (Kernel* kernel : Kernels()) {
    test::ExpectSameBitsOnAnyThreads<Op>(*kernel, sum.args, sum.out.data(),
                                         sum.out.size() * sizeof(float));
  }
}

TEST_F(CombineTest, EveryFieldOfTheProblemIsInItsKey) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .cols = 576, .used = 2});
}

TEST_F(CombineTest, ViewsThatDoNotFitAreRefusedByName) {
  const auto refused = [&](auto change, const char* words) {
    Sum sum(8, 2, 3);
    change(sum.args);
    const auto desc = DescOf(sum.args, {});
    ASSERT_FALSE(desc) << words;
    EXPECT_EQ(desc.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(desc.error().message.find(words), std::string::npos) << desc.error().message;
  };
  refused([](Args& a) { a.x.data = nullptr; }, "x");
  refused([](Args& a) { a.x.shape[0] = 7; }, "x [7, ");
  refused([](Args& a) { a.places.dtype = DataType::kF32; }, "places");
  refused([](Args& a) { a.places.shape[1] = 2; }, "places");
  refused([](Args& a) { a.shared.shape[0] = 4; }, "shared");
  refused([](Args& a) { a.gate.shape[1] = 2; }, "gate");
  refused([](Args& a) { a.gate.data = nullptr; }, "gate");
  refused([](Args& a) { a.out.shape[2] = 2; }, "out");
  EXPECT_FALSE(Validate({.rows = 1, .cols = 0, .used = 1}));
}

}  // namespace
}  // namespace tilewright::combine
