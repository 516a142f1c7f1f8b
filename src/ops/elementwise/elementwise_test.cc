#include "ops/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/numeric.h"
#include "core/test_util.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"

namespace tilewright::elementwise {
namespace {

constexpr Function kFunctions[] = {Function::kAdd,     Function::kMul,          Function::kSilu,
                                   Function::kSwiGlu,  Function::kGelu,         Function::kGeGlu,
                                   Function::kSoftcap, Function::kClampedSwiGlu};
constexpr float kSoftcap = 1.75f;
constexpr float kLimit = 2.5f;

using ElementwiseTest = test::OpTest<Op>;
using test::Rows;

bool HasGelu(Function function) {
  return function == Function::kGelu || function == Function::kGeGlu;
}
/// gelu(a) is a times the sigmoid of this.
double GeluExponent(double a) { return 1.5957691216 * (a + 0.044715 * a * a * a); }

/// silu loses a place in each of exp, the product, the sum and the quotient, and so does softcap;
/// swiglu rounds once more, add and mul once. The exponent of gelu is off by four roundings of
/// itself, which the exponential multiplies where it is large.
double UlpLimit(Function function, double a) {
  if (HasGelu(function)) return 5 + 4 * std::fabs(GeluExponent(a));
  if (function == Function::kClampedSwiGlu) return 6 + std::fabs(1.702 * a);
  return function == Function::kAdd || function == Function::kMul ? 0.5 : 5;
}

TEST_F(ElementwiseTest, EveryNumberOfThreadsGivesTheSameBits) {
  std::vector<float> a = test::RandomFloats(577 * 300, 7), b = test::RandomFloats(a.size(), 8),
                     out(a.size());
  for (const Function function : kFunctions) {
    for (const std::int64_t cols : {577, 576}) {  // contiguous, then row by row
      const Args args{.function = function,
                      .a = Rows(a.data(), DataType::kF32, cols, 300, 577),
                      .b = Rows(b.data(), DataType::kF32, cols, 300, 577),
                      .out = Rows(out.data(), DataType::kF32, cols, 300, 577),
                      .softcap = kSoftcap,
                      .limit = kLimit};
      for (Kernel* kernel : Kernels())
        test::ExpectSameBitsOnAnyThreads<Op>(*kernel, args, out.data(), out.size() * sizeof(float));
    }
  }
}

TEST_F(ElementwiseTest, EveryKernelAgreesWithTheOracleForEveryTailStrideAndAlignment) {
  const auto pool = MakeThreadPool(3);
  std::uint64_t seed = 100;
  struct Case {
    std::int64_t cols, rows, ld_a, ld_b, ld_out;
    std::size_t misalign;
  };
  std::vector<Case> cases = {
      {576, 7, 576, 576, 576, 0}, {1536, 40, 1536, 1536, 1536, 0}, {100, 400, 128, 101, 100, 4}};
  for (std::int64_t n = 1; n <= 34; ++n)
    cases.push_back({n, 3, n + n % 3, n, n + n % 2, static_cast<std::size_t>(n % 16 * 4)});
  for (const Case& c : cases) {
    test::Guarded<float> a(
        test::RandomFloats(static_cast<std::size_t>(c.ld_a * c.rows), ++seed, 4.0), c.misalign);
    test::Guarded<float> b(
        test::RandomFloats(static_cast<std::size_t>(c.ld_b * c.rows), ++seed, 4.0), 8);
    std::vector<double> want(static_cast<std::size_t>(c.cols * c.rows));
    for (const Function function : kFunctions) {
      Args args{.function = function,
                .a = Rows(a.data(), DataType::kF32, c.cols, c.rows, c.ld_a),
                .b = Rows(b.data(), DataType::kF32, c.cols, c.rows, c.ld_b),
                .out = Rows(want.data(), DataType::kF64, c.cols, c.rows, c.cols),
                .softcap = kSoftcap,
                .limit = kLimit};
      ASSERT_TRUE(Reference(args));
      for (Kernel* kernel : Kernels()) {
        SCOPED_TRACE(std::string(kernel->name()) + " " +
                     std::string(kFunctionWords[static_cast<std::size_t>(function)]) + " cols " +
                     std::to_string(c.cols) + " seed " + std::to_string(seed));
        test::Guarded<float> out(static_cast<std::size_t>(c.ld_out * c.rows), c.misalign);
        args.out = Rows(out.data(), DataType::kF32, c.cols, c.rows, c.ld_out);
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{pool.get()}));
        EXPECT_EQ(out.Damage(), "");
        for (std::int64_t r = 0; r < c.rows; ++r) {
          for (std::int64_t i = 0; i < c.ld_out; ++i) {
            const float got = out[static_cast<std::size_t>(r * c.ld_out + i)];
            if (i >= c.cols) {
              ASSERT_TRUE(std::isnan(got)) << "padding was written";
            } else {
              const double exact = want[static_cast<std::size_t>(r * c.cols + i)];
              const auto x = static_cast<double>(a[static_cast<std::size_t>(r * c.ld_a + i)]);
              if (HasGelu(function) && GeluExponent(x) < -87) {
                ASSERT_NEAR(got, exact, 2e-35) << x;  // where the exponential ends
              } else {
                ASSERT_LE(test::UlpError(got, exact), UlpLimit(function, x)) << r << " " << i;
              }
            }
          }
        }
        // In place on a, one thread: the same bits.
        test::Guarded<float> same(std::vector<float>(a.begin(), a.end()));
        Args in_place = args;
        in_place.a.data = same.data();
        in_place.out = in_place.a;
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, in_place, Stream{}));
        for (std::int64_t r = 0; r < c.rows; ++r) {
          ASSERT_TRUE(test::BitwiseEqual(same.data() + r * c.ld_a, out.data() + r * c.ld_out,
                                         static_cast<std::size_t>(c.cols) * sizeof(float)));
        }
        // In place on b.
        if (!IsUnary(function)) {
          test::Guarded<float> same_b(std::vector<float>(b.begin(), b.end()));
          in_place = args;
          in_place.b.data = same_b.data();
          in_place.out = in_place.b;
          ASSERT_TRUE(LaunchOnce<Op>(*kernel, in_place, Stream{}));
          for (std::int64_t r = 0; r < c.rows; ++r) {
            ASSERT_TRUE(test::BitwiseEqual(same_b.data() + r * c.ld_b, out.data() + r * c.ld_out,
                                           static_cast<std::size_t>(c.cols) * sizeof(float)));
          }
        }
      }
    }
  }
}

TEST_F(ElementwiseTest, OtherTypesAreReadExactlyAndRoundedOnce) {
  std::uint64_t seed = 150;
  for (const std::int64_t cols : {1, 17, 300}) {
    const std::int64_t n = 2 * cols;
    const auto values_a = test::RandomFloats(static_cast<std::size_t>(n), ++seed, 3.0);
    const auto values_b = test::RandomFloats(static_cast<std::size_t>(n), ++seed, 3.0);
    const auto rows = [&](void* data, DataType type) { return Rows(data, type, cols, 2, cols); };
    const auto check = [&](Kernel& kernel, Function function, DataType a, DataType b,
                           DataType out) {
      SCOPED_TRACE(std::string(kernel.name()) + " " + std::string(DataTypeName(a)) + " " +
                   std::string(DataTypeName(b)) + " to " + std::string(DataTypeName(out)));
      test::GuardedBytes in_a = test::Encoded(a, values_a), in_b = test::Encoded(b, values_b);
      test::GuardedBytes got(BytesOf(out, n));
      std::vector<float> exact_a = test::Decoded(a, in_a, n), exact_b = test::Decoded(b, in_b, n);
      std::vector<float> result(values_a.size());
      Args args{.function = function,
                .a = rows(exact_a.data(), DataType::kF32),
                .b = rows(exact_b.data(), DataType::kF32),
                .out = rows(result.data(), DataType::kF32),
                .softcap = kSoftcap,
                .limit = kLimit};
      ASSERT_TRUE(LaunchOnce<Op>(kernel, args, Stream{}));
      args.a = rows(in_a.data(), a), args.b = rows(in_b.data(), b);
      args.out = rows(got.data(), out);
      ASSERT_TRUE(LaunchOnce<Op>(kernel, args, Stream{}));
      const test::GuardedBytes want = test::Encoded(out, result);
      EXPECT_TRUE(test::BitwiseEqual(got.data(), want.data(), want.size()));
      EXPECT_EQ(got.Damage(), "");
    };
    for (Kernel* kernel : Kernels()) {
      if (kernel->info().reference) continue;  // rounds from f64
      for (const Function function : kFunctions) {
        for (const DataType a : test::kFloatTypes) {
          for (const DataType b : test::kFloatTypes) {
            for (const DataType out : test::kFloatTypes) check(*kernel, function, a, b, out);
          }
        }
      }
    }
  }
}

TEST_F(ElementwiseTest, SiluIsAccurateOverTheWholeRangeOfFloats) {
  // Every 4099th bit pattern: all exponents, both signs.
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 4099) {
    const float value = F32FromBits(static_cast<std::uint32_t>(bits));
    if (std::isfinite(value)) x.push_back(value);
  }
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> first;
  for (Kernel* kernel : Kernels()) {
    if (kernel->info().reference) continue;
    std::vector<float> y(x.size());
    Args args{.function = Function::kSilu,
              .a = Rows(x.data(), DataType::kF32, n, 1, n),
              .b = {},
              .out = Rows(y.data(), DataType::kF32, n, 1, n)};
    ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = static_cast<double>(x[i]) / (1 + std::exp(-static_cast<double>(x[i])));
      if (x[i] < -87.0f) {
        ASSERT_NEAR(y[i], exact, 2e-36) << x[i];
        continue;
      }
      worst = std::fmax(worst, test::UlpError(y[i], exact));
    }
    EXPECT_LE(worst, 4) << kernel->name();
    if (first.empty()) first = y;
    EXPECT_TRUE(test::BitwiseEqual(first.data(), y.data(), y.size() * sizeof(float)))
        << kernel->name() << " differs from " << Kernels()[0]->name();
  }
}

TEST_F(ElementwiseTest, NaNAndInfinityPassThrough) {
  for (Kernel* kernel : Kernels()) {
    for (const Function function : {Function::kSilu, Function::kGelu, Function::kSoftcap}) {
      SCOPED_TRACE(std::string(kernel->name()) + " " +
                   std::string(kFunctionWords[static_cast<std::size_t>(function)]));
      std::vector<float> x = {NAN, INFINITY, -0.0f, 0.0f, -1000.0f, 1000.0f}, y(6);
      ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                                 {.function = function,
                                  .a = Rows(x.data(), DataType::kF32, 6, 1, 6),
                                  .b = {},
                                  .out = Rows(y.data(), DataType::kF32, 6, 1, 6),
                                  .softcap = kSoftcap},
                                 Stream{}));
      const bool capped = function == Function::kSoftcap;
      EXPECT_TRUE(std::isnan(y[0]));
      EXPECT_EQ(y[1], capped ? kSoftcap : INFINITY);
      EXPECT_EQ(y[2], 0);
      EXPECT_EQ(y[3], 0);
      EXPECT_NEAR(y[4], capped ? -kSoftcap : 0, 1e-36);
      EXPECT_EQ(y[5], capped ? kSoftcap : 1000);
    }
  }
}

TEST_F(ElementwiseTest, SoftcapsAreExactOverTheWholeRange) {
  std::vector<float> x = {0.0f, -0.0f};
  for (float value = 1e-30f; value < 1e30f; value *= 1.37f) x.push_back(value), x.push_back(-value);
  for (float value = -4; value < 4; value += 0.0037f) x.push_back(value);
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> first;
  for (Kernel* kernel : Kernels()) {
    if (kernel->info().reference) continue;
    std::vector<float> y(x.size());
    ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                               {.function = Function::kSoftcap,
                                .a = Rows(x.data(), DataType::kF32, n, 1, n),
                                .b = {},
                                .out = Rows(y.data(), DataType::kF32, n, 1, n),
                                .softcap = kSoftcap},
                               Stream{}));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double limit = double{kSoftcap}, exact = limit * std::tanh(double{x[i]} / limit);
      ASSERT_LE(test::UlpError(y[i], exact), 5) << x[i];
      if (x[i] != 0) {
        ASSERT_EQ(std::signbit(y[i]), std::signbit(x[i])) << x[i];
      }
    }
    if (first.empty()) first = y;
    EXPECT_TRUE(test::BitwiseEqual(first.data(), y.data(), y.size() * sizeof(float)))
        << kernel->name() << " differs from " << Kernels()[0]->name();
  }
}

TEST_F(ElementwiseTest, ASoftcapThatIsNotPositiveIsRefused) {
  float data[2] = {};
  Args args{.function = Function::kSoftcap,
            .a = Rows(data, DataType::kF32, 2, 1, 2),
            .b = {},
            .out = Rows(data, DataType::kF32, 2, 1, 2)};
  for (const float softcap : {0.0f, -1.0f, NAN, INFINITY}) {
    args.softcap = softcap;
    const Result<Desc> desc = DescOf(args, {});
    ASSERT_FALSE(desc) << softcap;
    EXPECT_NE(desc.error().message.find("softcap = "), std::string::npos) << desc.error().message;
  }
}

TEST_F(ElementwiseTest, FourDimensionalStridedViewsAreWalkedRowByRow) {
  // [3, 2, 2, 2] inside memory with gaps at every level.
  std::vector<float> memory(200), out(24);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  const TensorView a{memory.data(), {3, 2, 2, 2}, {1, 5, 20, 70}, DataType::kF32};
  const TensorView to = Contiguous(out.data(), DataType::kF32, {3, 2, 2, 2});
  for (Kernel* kernel : Kernels()) {
    ASSERT_TRUE(
        LaunchOnce<Op>(*kernel, {.function = Function::kAdd, .a = a, .b = a, .out = to}, Stream{}));
    std::size_t at = 0;
    for (int i3 = 0; i3 < 2; ++i3) {
      for (int i2 = 0; i2 < 2; ++i2) {
        for (int i1 = 0; i1 < 2; ++i1) {
          for (int i0 = 0; i0 < 3; ++i0)
            ASSERT_EQ(out[at++], 2.0f * static_cast<float>(i0 + 5 * i1 + 20 * i2 + 70 * i3));
        }
      }
    }
  }
}

TEST_F(ElementwiseTest, ViewsThatDoNotFitAreRefusedByName) {
  float data[8] = {};
  Args args{.function = Function::kAdd,
            .a = Rows(data, DataType::kF32, 4, 2, 4),
            .b = Rows(data, DataType::kF32, 4, 1, 4),
            .out = Rows(data, DataType::kF32, 4, 2, 4)};
  const Status status = LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("b has shape"), std::string::npos)
      << status.error().message;
  args.function = Function::kSilu;
  EXPECT_TRUE(LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{})) << "silu has no b";
  args.out.stride[0] = 2;
  EXPECT_FALSE(LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{}));
}

TEST_F(ElementwiseTest, TheWidestKernelOfTheDeviceIsChosenAndTheReferenceTakesOtherTypes) {
  Desc desc{.function = Function::kSwiGlu, .rows = 3, .cols = 1536};
  DeviceSpec device;
  EXPECT_EQ(Choose(Feasible(*Validate(desc), registry_, device), nullptr).value().kernel().name(),
            "elementwise.f32.scalar");
  device.features = kFeatureAvx2 | kFeatureAvx512;
  EXPECT_EQ(Choose(Feasible(*Validate(desc), registry_, device), nullptr).value().kernel().name(),
            "elementwise.f32.avx512");
  desc.type_a = DataType::kF64;
  EXPECT_EQ(Choose(Feasible(*Validate(desc), registry_, device), nullptr).value().kernel().name(),
            "elementwise.any.reference");
}

TEST_F(ElementwiseTest, EveryFieldOfTheProblemIsInItsKey) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .cols = 1536});
}

TEST_F(ElementwiseTest, ProblemsWithoutElementsAndASiluOfTwoOperandsAreRefused) {
  EXPECT_FALSE(Validate(Desc{.rows = 0}));
  EXPECT_FALSE(Validate(Desc{.cols = 0}));
  const auto silu = Validate(Desc{.function = Function::kSilu});
  ASSERT_FALSE(silu);
  EXPECT_NE(silu.error().message.find("type_b = f32"), std::string::npos);
}

}  // namespace
}  // namespace tilewright::elementwise
