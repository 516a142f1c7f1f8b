#include "ops/gemm/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/gemm/test_problem.h"

namespace tilewright {
namespace {

using test::TestProblem;

TEST(Oracle, MultipliesByHandCheckedNumbers) {
  // A = [1 2; 3 4], B = [5 6; 7 8], C = 1: 2 A B - C.
  const float a[] = {1, 2, 3, 4}, b[] = {5, 7, 6, 8}, c[] = {1, 1, 1, 1};
  float d[4];
  GemmArgs args;
  args.alpha = 2, args.beta = -1;
  args.a = a, args.b = b, args.c = c, args.d = d;
  args.a_layout = {.rows = 2, .cols = 2, .ld = 2};
  args.b_layout = {.order = Order::kColMajor, .rows = 2, .cols = 2, .ld = 2};
  args.c_layout = args.d_layout = {.rows = 2, .cols = 2, .ld = 2};
  GemmDesc desc;
  desc.m = desc.n = desc.k = 2;
  ASSERT_TRUE(ReferenceGemm(args, desc));
  EXPECT_THAT(d, testing::ElementsAre(37, 43, 85, 99));
}

TEST(Oracle, TellsTheErrorOfTheWholeBesideThatOfTheWorstElement) {
  const float a[] = {1, 2, 3, 4}, b[] = {1, 0, 0, -1};  // B column-major
  float d[] = {1 + 3, -2, 3, -4 + 4};
  GemmArgs args;
  args.a = a, args.b = b, args.d = d;
  args.a_layout = args.d_layout = {.rows = 2, .cols = 2, .ld = 2};
  args.b_layout = {.order = Order::kColMajor, .rows = 2, .cols = 2, .ld = 2};
  GemmDesc desc;
  desc.m = desc.n = desc.k = 2;
  const Result<GemmError> error = CheckGemm(args, desc, {});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->compared, 4);
  EXPECT_DOUBLE_EQ(error->error_l2, 5);
  EXPECT_DOUBLE_EQ(error->want_l2, std::sqrt(30.0));
  EXPECT_DOUBLE_EQ(error->magnitude_l2, std::sqrt(30.0));
}

TEST(Oracle, AppliesScalesAndZerosByTheirGroups) {
  // One row, k = 4 in two groups of u4: scale 2 zero 1, scale 0.5 zero 8; codes 3 4 9 15.
  const float a[] = {1, 10, 100, 1000};
  const std::uint8_t b[] = {0x43, 0xf9};
  const float v[] = {2, 1, 0.5f, 8};
  float d = 0;
  GemmArgs args;
  args.a = a, args.b = b, args.v = v, args.d = &d;
  args.a_layout = {.rows = 1, .cols = 4, .ld = 4};
  args.b_layout = {.type = DataType::kU4, .order = Order::kColMajor, .rows = 4, .cols = 1, .ld = 4};
  args.v_layout = {.rows = 2, .cols = 1, .ld = 1};
  args.d_layout = {.rows = 1, .cols = 1, .ld = 1};
  GemmDesc desc;
  desc.m = desc.n = 1, desc.k = 4;
  desc.type_b = DataType::kU4, desc.type_v = DataType::kF32, desc.quant_b = {QuantType::kK, 0, 2};
  ASSERT_TRUE(ReferenceGemm(args, desc));
  EXPECT_EQ(d, 1 * 4 + 10 * 6 + 100 * 0.5f + 1000 * 3.5f);
}

TEST(Oracle, NormalisesRowsBeforeItMultipliesThem) {
  // Mean squares 1 and 16, so that the rows become {1, -2} and {-1, 2} times 1, 2 and 1.
  const float a[] = {1, -1, -4, 4}, norm[] = {1, 2}, b[] = {10, 1, 0, 1};  // B column-major
  float d[4];
  GemmArgs args;
  args.a = a, args.b = b, args.d = d, args.norm = norm;
  args.a_layout = args.d_layout = {.rows = 2, .cols = 2, .ld = 2};
  args.b_layout = {.order = Order::kColMajor, .rows = 2, .cols = 2, .ld = 2};
  GemmDesc desc;
  desc.m = desc.n = desc.k = 2;
  desc.prologue = Prologue::kRmsNorm, desc.type_norm = DataType::kF32;
  ASSERT_TRUE(ReferenceGemm(args, desc));
  EXPECT_THAT(d, testing::ElementsAre(8, -2, -8, 2));
  EXPECT_LE(CheckGemm(args, desc, {})->worst, 1);
  d[3] *= 1.001f;
  EXPECT_GT(CheckGemm(args, desc, {})->worst, 1);
  args.epsilon = 3;  // 1 / sqrt(4) for the first row
  ASSERT_TRUE(ReferenceGemm(args, desc));
  EXPECT_EQ(d[0], 4);
  args.norm = nullptr;
  EXPECT_FALSE(ReferenceGemm(args, desc));
}

TEST(Oracle, RefusesPackedWeightsAndSeesAWrongElement) {
  GemmDesc d;
  d.m = 9, d.n = 21, d.k = 70;
  TestProblem problem(d, {});
  GemmArgs args = problem.args();
  ASSERT_TRUE(ReferenceGemm(args, d));
  EXPECT_LE(CheckGemm(args, d, {})->worst, 1);
  static_cast<float*>(args.d)[8 * args.d_layout.ld + 20] += 1e-2f;
  const auto found = CheckGemm(args, d, {.max_rows = 2, .max_cols = 2});
  EXPECT_GT(found->worst, 1);
  EXPECT_EQ(found->row, 8);
  EXPECT_EQ(found->col, 20);
  args.b_layout.pack = 1;
  EXPECT_EQ(ReferenceGemm(args, d).error().code, ErrorCode::kUnsupported);
}

// Against loops written down from the contract, one index at a time.
TEST(Oracle, AgreesWithPlainLoopsInEveryOrder) {
  for (int orders = 0; orders < 8; ++orders) {
    GemmDesc d;
    d.m = 7, d.n = 19, d.k = 33;
    d.order_a = static_cast<Order>(orders & 1), d.order_b = static_cast<Order>(orders >> 1 & 1);
    d.order_c = static_cast<Order>(orders >> 2);
    test::CallOptions o;
    o.alpha = -0.5f, o.beta = 2.0f, o.pad_a = 1, o.pad_b = 2, o.pad_c = 3;
    TestProblem problem(d, o);
    const GemmArgs args = problem.args();
    ASSERT_TRUE(ReferenceGemm(args, d));
    const auto at = [](const void* data, const MatrixLayout& l, int r, int c) {
      const auto* values = static_cast<const float*>(data);
      return static_cast<double>(l.order == Order::kRowMajor ? values[r * l.ld + c]
                                                             : values[c * l.ld + r]);
    };
    for (int r = 0; r < d.m; ++r) {
      for (int c = 0; c < d.n; ++c) {
        double sum = 0;
        for (int i = 0; i < d.k; ++i)
          sum += at(args.a, args.a_layout, r, i) * at(args.b, args.b_layout, i, c);
        const double want = -0.5 * sum + 2.0 * at(args.c, args.c_layout, r, c);
        EXPECT_NEAR(at(args.d, args.d_layout, r, c), want, 1e-6 * (1 + std::fabs(want)));
      }
    }
  }
}

TEST(Oracle, GatesPairsOfSixteenColumns) {
  // k = 1: the product is A's one value times the column; gate columns 0..15, up columns 16..31.
  const float a = 2.0f;
  std::vector<float> b(32), d(16);
  for (int c = 0; c < 32; ++c)
    b[static_cast<std::size_t>(c)] = 0.25f * static_cast<float>(c) - 3.0f;
  GemmArgs args;
  args.a = &a, args.b = b.data(), args.d = d.data();
  args.a_layout = {.rows = 1, .cols = 1, .ld = 1};
  args.b_layout = {.order = Order::kColMajor, .rows = 1, .cols = 32, .ld = 1};
  args.d_layout = {.rows = 1, .cols = 16, .ld = 16};
  GemmDesc desc;
  desc.m = 1, desc.n = 32, desc.k = 1;
  desc.epilogue = Epilogue::kGatedSilu;
  ASSERT_TRUE(ReferenceGemm(args, desc));
  for (std::size_t c = 0; c < 16; ++c) {
    const double gate = 2.0 * b[c], up = 2.0 * b[c + 16];
    EXPECT_NEAR(d[c], gate / (1 + std::exp(-gate)) * up, 1e-5);
  }
}

TEST(Oracle, FindsGroupsOfRowsAndScatteredRows) {
  // Three groups of 2, 0 and 1 rows, k = n = 1: group g multiplies by 10^g. Row r of A is memory
  // row a_rows[r].
  const float a[] = {1, 2, 3}, b[] = {1, 10, 100};
  const std::int32_t offsets[] = {0, 2, 2, 3}, a_rows[] = {2, 0, 1}, d_rows[] = {1, 2, 0};
  float d[3] = {};
  GemmArgs args;
  args.a = a, args.b = b, args.d = d;
  args.a_layout = {.rows = 3, .cols = 1, .ld = 1, .num = 3, .offsets = offsets, .idxs = a_rows};
  args.b_layout = {.order = Order::kColMajor, .rows = 1, .cols = 1, .ld = 1, .num = 3};
  args.d_layout = {.rows = 3, .cols = 1, .ld = 1, .num = 3, .offsets = offsets, .idxs = d_rows};
  GemmDesc desc;
  desc.m = 3, desc.n = desc.k = 1;
  desc.num = 3, desc.group_axis = 0;
  desc.striding_a = desc.striding_c = Striding::kIndexed, desc.striding_b = Striding::kBlocked;
  ASSERT_TRUE(ReferenceGemm(args, desc));
  // Logical rows: 3 * 1, 1 * 1, 2 * 100.
  EXPECT_THAT(d, testing::ElementsAre(200, 3, 1));
}

TEST(Oracle, SeesANaNThatShouldNotBeThere) {
  GemmDesc d;
  d.m = 3, d.n = 4, d.k = 5;
  TestProblem problem(d, {});
  const GemmArgs args = problem.args();
  ASSERT_TRUE(ReferenceGemm(args, d));
  static_cast<float*>(args.d)[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_GT(CheckGemm(args, d, {})->worst, 1);
}

}  // namespace
}  // namespace tilewright
