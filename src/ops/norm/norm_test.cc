#include "ops/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/test_util.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"

namespace tilewright::norm {
namespace {

using NormTest = test::OpTest<Op>;
using test::Rows;

struct Case {
  std::int64_t cols, rows, ld_in, ld_out;
  std::size_t misalign;
};

constexpr Case kCases[] = {
    {1, 1, 1, 1, 0},        {3, 2, 3, 5, 4},          {15, 3, 16, 15, 4},
    {16, 3, 16, 16, 0},     {17, 4, 20, 18, 12},      {63, 2, 63, 63, 4},
    {64, 5, 64, 70, 0},     {65, 2, 65, 65, 60},      {576, 7, 576, 576, 0},
    {577, 33, 600, 580, 8}, {8192, 3, 8192, 8192, 0}, {127, 300, 127, 127, 0}};

TEST_F(NormTest, EveryKernelAgreesWithTheOracle) {
  const auto pool = MakeThreadPool(3);
  std::uint64_t seed = 1;
  for (const Case& c : kCases) {
    test::Guarded<float> in(static_cast<std::size_t>(c.ld_in * c.rows), c.misalign);
    const auto values = test::RandomFloats(static_cast<std::size_t>(c.cols * c.rows), ++seed, 3.0);
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t i = 0; i < c.cols; ++i) {
        in[static_cast<std::size_t>(r * c.ld_in + i)] =
            values[static_cast<std::size_t>(r * c.cols + i)];
      }
    }
    test::Guarded<float> weight(test::RandomFloats(static_cast<std::size_t>(c.cols), ++seed),
                                c.misalign);
    std::vector<double> want(static_cast<std::size_t>(c.cols * c.rows));
    Args args{.in = Rows(in.data(), DataType::kF32, c.cols, c.rows, c.ld_in),
              .weight = Rows(weight.data(), DataType::kF32, c.cols, 1, c.cols),
              .out = Rows(want.data(), DataType::kF64, c.cols, c.rows, c.cols),
              .epsilon = 1e-5f};
    ASSERT_TRUE(Reference(args));
    for (Kernel* kernel : Kernels()) {
      SCOPED_TRACE(std::string(kernel->name()) + " cols " + std::to_string(c.cols) + " rows " +
                   std::to_string(c.rows));
      test::Guarded<float> out(static_cast<std::size_t>(c.ld_out * c.rows), c.misalign);
      args.out = Rows(out.data(), DataType::kF32, c.cols, c.rows, c.ld_out);
      ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{pool.get()}));
      EXPECT_EQ(out.Damage(), "");
      for (std::int64_t r = 0; r < c.rows; ++r) {
        for (std::int64_t i = 0; i < c.ld_out; ++i) {
          const float got = out[static_cast<std::size_t>(r * c.ld_out + i)];
          if (i < c.cols) {
            ASSERT_LT(test::UlpError(got, want[static_cast<std::size_t>(r * c.cols + i)]), 6)
                << r << " " << i;
          } else {
            ASSERT_TRUE(std::isnan(got)) << "padding was written";
          }
        }
      }
      // In place, on another number of threads: the same bits.
      test::Guarded<float> same(std::vector<float>(in.begin(), in.end()), 4);
      Args in_place = args;
      in_place.in.data = same.data();
      in_place.out = in_place.in;
      ASSERT_TRUE(LaunchOnce<Op>(*kernel, in_place, Stream{}));
      for (std::int64_t r = 0; r < c.rows; ++r) {
        ASSERT_TRUE(test::BitwiseEqual(same.data() + r * c.ld_in, out.data() + r * c.ld_out,
                                       static_cast<std::size_t>(c.cols) * sizeof(float)));
      }
    }
  }
}

TEST_F(NormTest, EveryNumberOfThreadsGivesTheSameBits) {
  std::vector<float> in = test::RandomFloats(576 * 300, 7), weight = test::RandomFloats(576, 8),
                     out(in.size());
  const Args args{.in = Rows(in.data(), DataType::kF32, 576, 300, 576),
                  .weight = Rows(weight.data(), DataType::kF32, 576, 1, 576),
                  .out = Rows(out.data(), DataType::kF32, 576, 300, 576)};
  for (Kernel* kernel : Kernels())
    test::ExpectSameBitsOnAnyThreads<Op>(*kernel, args, out.data(), out.size() * sizeof(float));
}

TEST_F(NormTest, ThreadsAreALaunchParameterThatIsOfferedWhereTheWorkIsShortButCut) {
  const auto device = test::CpuWithCores(8);
  const auto specs_of = [&](std::int32_t rows) {
    std::vector<std::string> texts;
    const Desc desc{.rows = rows, .cols = 576};
    const auto candidates = Feasible(*Validate(desc), registry_, device->spec());
    for (const auto& spec : candidates.Find("norm.rms.f32.avx2")->specs)
      texts.push_back(SpecText(spec));
    EXPECT_EQ(SpecText(Choose(candidates, nullptr)->spec()), "swizzle=0 splits=1") << rows;
    return texts;
  };
  const std::string all = "swizzle=0 splits=1";
  EXPECT_EQ(specs_of(3), std::vector{all}) << "one piece";
  EXPECT_EQ(specs_of(12), (std::vector{all, all + " threads=2", all + " threads=1"}))
      << "a pass of 12 sequences";
  EXPECT_EQ(specs_of(300),
            (std::vector{all, all + " threads=4", all + " threads=2", all + " threads=1"}));
  EXPECT_EQ(specs_of(100000), std::vector{all}) << "long enough for everybody";
}

TEST_F(NormTest, APinOfOneThreadRunsOnOneWorker) {
  const auto device = test::CpuWithCores(4);
  std::vector<float> in = test::RandomFloats(576 * 300, 9), weight(576, 1.0f), out(in.size());
  const Args args{.in = Rows(in.data(), DataType::kF32, 576, 300, 576),
                  .weight = Rows(weight.data(), DataType::kF32, 576, 1, 576),
                  .out = Rows(out.data(), DataType::kF32, 576, 300, 576)};
  const Desc desc = DescOf(args, {}).value();
  const auto tasks_with = [&](const Pins& pins) {
    const auto choice =
        Choose(Feasible(*Validate(desc), registry_, device->spec()), nullptr, &pins);
    const auto plan = Bind(choice.value(), *device).value();
    Workspace none;
    test::ForeignExecutor executor(4);
    EXPECT_TRUE(tilewright::Run(plan, args, none, Stream{&executor}));
    return executor.most_tasks();
  };
  EXPECT_EQ(tasks_with({}), 4);
  Pins pins;
  for (const auto& [threads, tasks] : {std::pair{"1", 0}, {"2", 2}}) {
    pins.by_problem[{"norm", KeyOf(desc)}] = {"norm.rms.f32.scalar",
                                              std::string("swizzle=0 splits=1 threads=") + threads};
    EXPECT_EQ(tasks_with(pins), tasks) << threads;
  }
}

TEST_F(NormTest, OtherTypesAreReadExactlyAndRoundedOnce) {
  constexpr std::int64_t kRows = 3;
  std::uint64_t seed = 50;
  for (const std::int64_t cols : {1, 15, 64, 577}) {
    const std::int64_t n = cols * kRows;
    const auto weight = test::RandomFloats(static_cast<std::size_t>(cols), ++seed);
    const auto values = test::RandomFloats(static_cast<std::size_t>(n), ++seed, 3.0);
    for (Kernel* kernel : Kernels()) {
      if (kernel->info().reference) continue;  // rounds from f64
      for (const DataType in : test::kFloatTypes) {
        for (const DataType out : test::kFloatTypes) {
          SCOPED_TRACE(std::string(kernel->name()) + " " + std::string(DataTypeName(in)) + " to " +
                       std::string(DataTypeName(out)) + " cols " + std::to_string(cols));
          test::GuardedBytes source = test::Encoded(in, values), got(BytesOf(out, n));
          std::vector<float> exact = test::Decoded(in, source, n), result(values.size());
          Args args{
              .in = Rows(exact.data(), DataType::kF32, cols, kRows, cols),
              .weight = Rows(const_cast<float*>(weight.data()), DataType::kF32, cols, 1, cols),
              .out = Rows(result.data(), DataType::kF32, cols, kRows, cols)};
          ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
          args.in = Rows(source.data(), in, cols, kRows, cols);
          args.out = Rows(got.data(), out, cols, kRows, cols);
          ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
          const test::GuardedBytes want = test::Encoded(out, result);
          EXPECT_TRUE(test::BitwiseEqual(got.data(), want.data(), want.size()));
          EXPECT_EQ(got.Damage(), "");
        }
      }
    }
  }
}

TEST_F(NormTest, ASumIsWrittenAndNormalisedAsAnAdditionAndANormWouldDo) {
  constexpr std::int64_t kCols = 100, kRows = 400, kLd = 103;
  const auto pool = MakeThreadPool(3);
  const auto a = test::RandomFloats(kLd * kRows, 60), b = test::RandomFloats(kCols * kRows, 61);
  auto weight = test::RandomFloats(kCols, 62);
  for (Kernel* kernel : Kernels()) {
    SCOPED_TRACE(kernel->name());
    test::Guarded<float> in(a), residual(b), sum(kCols * kRows), out(kCols * kRows);
    Args args{.in = Rows(in.data(), DataType::kF32, kCols, kRows, kLd),
              .weight = Rows(weight.data(), DataType::kF32, kCols, 1, kCols),
              .out = Rows(out.data(), DataType::kF32, kCols, kRows, kCols),
              .residual = Rows(residual.data(), DataType::kF32, kCols, kRows, kCols),
              .sum = Rows(sum.data(), DataType::kF32, kCols, kRows, kCols)};
    ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{pool.get()}));
    EXPECT_EQ(out.Damage() + sum.Damage(), "");
    std::vector<float> added(b), normed(b.size());
    for (std::size_t i = 0; i < b.size(); ++i) added[i] += a[i / kCols * kLd + i % kCols];
    EXPECT_TRUE(test::BitwiseEqual(sum.data(), added.data(), added.size() * sizeof(float)));
    ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                               {.in = Rows(added.data(), DataType::kF32, kCols, kRows, kCols),
                                .weight = args.weight,
                                .out = Rows(normed.data(), DataType::kF32, kCols, kRows, kCols)},
                               Stream{}));
    EXPECT_TRUE(test::BitwiseEqual(out.data(), normed.data(), normed.size() * sizeof(float)));
    // The sum over the residual.
    args.sum = args.residual;
    ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
    EXPECT_TRUE(test::BitwiseEqual(residual.data(), added.data(), added.size() * sizeof(float)));
    EXPECT_TRUE(test::BitwiseEqual(out.data(), normed.data(), normed.size() * sizeof(float)));
    args.sum.dtype = DataType::kBF16;
    const Status status = LaunchOnce<Op>(*kernel, args, Stream{});
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("sum is bf16, must be f32"), std::string::npos);
  }
}

TEST_F(NormTest, EveryFieldOfTheProblemIsInItsKey) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .cols = 576});
}

TEST_F(NormTest, TheOracleIsTheFormula) {
  double in[] = {3, 4}, weight[] = {1, 2}, out[2];
  ASSERT_TRUE(Reference({.in = Rows(in, DataType::kF64, 2, 1, 2),
                         .weight = Rows(weight, DataType::kF64, 2, 1, 2),
                         .out = Rows(out, DataType::kF64, 2, 1, 2),
                         .epsilon = 0.0f}));
  EXPECT_DOUBLE_EQ(out[0], 3 / std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(out[1], 8 / std::sqrt(12.5));
}

TEST_F(NormTest, ARowOfZerosStaysFiniteAndANaNStaysInItsRow) {
  for (Kernel* kernel : Kernels()) {
    std::vector<float> in(200, 0.0f), weight(100, 1.0f), out(200, 7.0f);
    in[150] = NAN;
    ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                               {.in = Rows(in.data(), DataType::kF32, 100, 2, 100),
                                .weight = Rows(weight.data(), DataType::kF32, 100, 1, 100),
                                .out = Rows(out.data(), DataType::kF32, 100, 2, 100)},
                               Stream{}));
    for (int i = 0; i < 100; ++i) ASSERT_EQ(out[static_cast<std::size_t>(i)], 0) << kernel->name();
    EXPECT_TRUE(std::isnan(out[100])) << kernel->name();
  }
}

TEST_F(NormTest, ViewsThatDoNotFitAreRefusedByName) {
  float data[8] = {};
  Args args{.in = Rows(data, DataType::kF32, 4, 2, 4),
            .weight = Rows(data, DataType::kF32, 3, 1, 3),
            .out = Rows(data, DataType::kF32, 4, 2, 4)};
  Status status = LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("weight"), std::string::npos);
  args.weight.shape[0] = 4;
  args.out.shape[1] = 1;
  EXPECT_FALSE(LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{}));
  args.out.shape[1] = 2;
  args.out.data = nullptr;
  EXPECT_FALSE(LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{}));
  args.out.data = data;
  EXPECT_TRUE(LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{}));
}

TEST_F(NormTest, TheWidestKernelOfTheDeviceIsChosenAndTheReferenceTakesOtherTypes) {
  Desc desc{.rows = 4, .cols = 576};
  for (const auto& [isa, features, name] :
       {std::tuple{Isa::kScalar, 0u, "norm.rms.f32.scalar"},
        std::tuple{Isa::kAvx2, std::uint32_t{kFeatureAvx2}, "norm.rms.f32.avx2"},
        std::tuple{Isa::kAvx512, kFeatureAvx2 | kFeatureAvx512, "norm.rms.f32.avx512"}}) {
    DeviceSpec device;
    device.isa = isa;
    device.features = features;
    EXPECT_EQ(Choose(Feasible(*Validate(desc), registry_, device), nullptr).value().kernel().name(),
              name);
  }
  desc.type_out = DataType::kF64;
  EXPECT_EQ(Choose(Feasible(*Validate(desc), registry_, device_), nullptr).value().kernel().name(),
            "norm.rms.any.reference");
  desc.type_out = DataType::kQ4_0;
  const auto none = Choose(Feasible(*Validate(desc), registry_, device_), nullptr);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUnsupported);
}

TEST_F(NormTest, EveryKernelHasAnIdAndAFingerprint) {
  for (Kernel* kernel : registry_.kernels())
    EXPECT_FALSE(kernel->info().fingerprint.empty()) << kernel->name();
  EXPECT_EQ(registry_.kernels().size(), 4u);
}

}  // namespace
}  // namespace tilewright::norm
