#include "ops/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "core/test_util.h"
#include "engine/desc_test_util.h"
#include "engine/launch_once.h"
#include "engine/op_test_util.h"
#include "engine/threads_test_util.h"

namespace tilewright::rope {
namespace {

using RopeTest = test::OpTest<Op>;

/// [head_dim, heads, rows] with `pad` elements after each head and each row.
TensorView Heads(void* data, DataType type, std::int64_t head_dim, std::int64_t heads,
                 std::int64_t rows, std::int64_t pad) {
  const std::int64_t head = head_dim + pad, row = head * heads + pad;
  return TensorView{data, {head_dim, heads, rows, 1}, {1, head, row, row * rows}, type};
}
std::size_t Size(const TensorView& v) { return static_cast<std::size_t>(v.stride[2] * v.shape[2]); }

TensorView Ints(std::vector<std::int32_t>& values) {
  return Contiguous(values.data(), DataType::kI32,
                    {static_cast<std::int64_t>(values.size()), 1, 1, 1});
}

struct Case {
  std::int32_t head_dim, dims, heads, rows, pad;
};
constexpr Case kCases[] = {{64, 64, 9, 5, 0}, {64, 64, 3, 40, 3}, {128, 128, 2, 3, 1},
                           {80, 80, 2, 3, 0}, {64, 32, 2, 3, 5},  {2, 2, 1, 1, 0},
                           {6, 6, 3, 2, 1},   {100, 34, 2, 3, 0}, {256, 256, 1, 70, 0}};

std::vector<RopeParams> AllParams(std::int32_t dims) {
  std::vector<RopeParams> all;
  for (const RopeMode mode : {RopeMode::kInterleaved, RopeMode::kHalfSplit}) {
    all.push_back({.mode = mode, .dims = dims});
    all.push_back({.mode = mode, .dims = dims, .base = 500000.0f, .freq_scale = 0.25f});
    all.push_back({.mode = mode, .dims = dims, .base = 500000.0f, .scaling_factor = 8.0f});
  }
  return all;
}

TEST_F(RopeTest, EveryNumberOfThreadsGivesTheSameBits) {
  std::vector<std::int32_t> positions(300);
  std::iota(positions.begin(), positions.end(), 5);
  const TensorView view = Heads(nullptr, DataType::kF32, 64, 9, 300, 0);
  std::vector<float> in = test::RandomFloats(Size(view), 7), out(in.size());
  Args args{.qk = view,
            .positions = Ints(positions),
            .factors = {},
            .out = view,
            .params = {.mode = RopeMode::kHalfSplit, .dims = 64}};
  args.qk.data = in.data(), args.out.data = out.data();
  for (Kernel* kernel : Kernels())
    test::ExpectSameBitsOnAnyThreads<Op>(*kernel, args, out.data(), out.size() * sizeof(float));
}

TEST_F(RopeTest, EveryKernelAgreesWithTheOracleWithAndWithoutATable) {
  const auto pool = MakeThreadPool(3);
  std::uint64_t seed = 10;
  for (const Case& c : kCases) {
    for (const RopeParams& params : AllParams(c.dims)) {
      std::vector<std::int32_t> positions;
      Random random(++seed);
      for (int r = 0; r < c.rows; ++r)
        positions.push_back(static_cast<std::int32_t>(random.Below(r == 0 ? 200000 : 300)));
      TensorView view = Heads(nullptr, DataType::kF32, c.head_dim, c.heads, c.rows, c.pad);
      test::Guarded<float> in(test::RandomFloats(Size(view), ++seed), 4);
      std::vector<double> want(Size(view), 0.0);
      Args args{
          .qk = view, .positions = Ints(positions), .factors = {}, .out = view, .params = params};
      args.qk.data = in.data();
      args.out.data = want.data();
      args.out.dtype = DataType::kF64;
      ASSERT_TRUE(Reference(args));
      args.out.dtype = DataType::kF32;
      const Table table = Table::Make(params, nullptr, 150).value();

      for (Kernel* kernel : Kernels()) {
        SCOPED_TRACE(std::string(kernel->name()) + " head_dim " + std::to_string(c.head_dim) +
                     " dims " + std::to_string(c.dims) + " seed " + std::to_string(seed));
        test::Guarded<float> out(Size(view), 8);
        args.out.data = out.data();
        args.table = &table;
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{pool.get()}));
        EXPECT_EQ(out.Damage(), "");
        for (std::int64_t r = 0; r < c.rows; ++r) {
          for (std::int64_t h = 0; h < c.heads; ++h) {
            for (std::int64_t i = 0; i < c.head_dim + c.pad; ++i) {
              const auto at = static_cast<std::size_t>(r * view.stride[2] + h * view.stride[1] + i);
              if (i >= c.head_dim) {
                ASSERT_TRUE(std::isnan(out[at])) << "padding was written";
              } else if (i >= c.dims) {
                ASSERT_EQ(out[at], in[at]) << "elements beyond dims pass through";
              } else {
                // |x| <= 5: three roundings of values below 5 and of factors below 1.
                ASSERT_NEAR(out[at], want[at], 2e-6) << r << " " << h << " " << i;
              }
            }
          }
        }
        // In place, without a table, on one thread: the same bits.
        test::Guarded<float> same(std::vector<float>(in.begin(), in.end()));
        Args in_place = args;
        in_place.table = nullptr;
        in_place.qk.data = in_place.out.data = same.data();
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, in_place, Stream{}));
        for (std::int64_t r = 0; r < c.rows; ++r) {
          for (std::int64_t h = 0; h < c.heads; ++h) {
            const auto at = r * view.stride[2] + h * view.stride[1];
            ASSERT_TRUE(test::BitwiseEqual(same.data() + at, out.data() + at,
                                           sizeof(float) * static_cast<std::size_t>(c.head_dim)));
          }
        }
      }
    }
  }
}

TEST_F(RopeTest, OtherTypesAreReadExactlyAndRoundedOnce) {
  constexpr std::int64_t kHeadDim = 20, kHeads = 3, kRows = 2, kCount = kHeadDim * kHeads * kRows;
  std::vector<std::int32_t> positions = {5, 70};
  const auto values = test::RandomFloats(kCount, 300, 3.0);
  const auto view = [](void* data, DataType type) {
    return Contiguous(data, type, {kHeadDim, kHeads, kRows, 1});
  };
  for (Kernel* kernel : Kernels()) {
    if (kernel->info().reference) continue;  // rounds from f64
    for (const DataType in : test::kFloatTypes) {
      for (const DataType out : test::kFloatTypes) {
        SCOPED_TRACE(std::string(kernel->name()) + " " + std::string(DataTypeName(in)) + " to " +
                     std::string(DataTypeName(out)));
        test::GuardedBytes source = test::Encoded(in, values), got(BytesOf(out, kCount));
        std::vector<float> exact = test::Decoded(in, source, kCount), result(values.size());
        Args args{.qk = view(exact.data(), DataType::kF32),
                  .positions = Ints(positions),
                  .factors = {},
                  .out = view(result.data(), DataType::kF32),
                  .params = {.dims = 12}};
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
        args.qk = view(source.data(), in), args.out = view(got.data(), out);
        ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
        const test::GuardedBytes want = test::Encoded(out, result);
        EXPECT_TRUE(test::BitwiseEqual(got.data(), want.data(), want.size()));
        EXPECT_EQ(got.Damage(), "");
      }
    }
  }
}

TEST_F(RopeTest, ARowWithoutAPlaceInTheCacheIsRefusedByNameBeforeAnythingIsWritten) {
  std::vector<std::int32_t> positions = {0, 8}, slots = {0, 0}, pages = {1, 0};
  std::vector<float> in(8, 1.0f), cache(32, 7.0f);
  Args args{.qk = Contiguous(in.data(), DataType::kF32, {4, 1, 2, 1}),
            .positions = Ints(positions),
            .factors = {},
            .out = {},
            .params = {.dims = 4},
            .cache = Contiguous(cache.data(), DataType::kF32, {4, 1, 4, 2}),
            .slots = Ints(slots),
            .pages = Contiguous(pages.data(), DataType::kI32, {2, 1, 1, 1})};
  const auto refused = [&](Kernel& kernel, ErrorCode code, const char* text) {
    const Status status = LaunchOnce<Op>(kernel, args, Stream{});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, code);
    EXPECT_NE(status.error().message.find(text), std::string::npos) << status.error().message;
    EXPECT_EQ(cache, std::vector<float>(32, 7.0f));
  };
  for (Kernel* kernel : Kernels()) {
    SCOPED_TRACE(kernel->name());
    refused(*kernel, ErrorCode::kExhausted, "positions[1] = 8, the context has 8");
    positions[1] = 7, slots[1] = 1;
    refused(*kernel, ErrorCode::kInvalidArgument, "slots[1] = 1, the cache has 1");
    slots[1] = 0, pages[1] = 2;
    refused(*kernel, ErrorCode::kInvalidArgument, "pages[1, 0] = 2, the cache has 2");
    positions[1] = 8, pages[1] = 0;
  }
  args.out = args.qk;
  EXPECT_FALSE(LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{})) << "out and a cache";
}

TEST_F(RopeTest, TheOracleTurnsPairsByTheAngleOfTheFormula) {
  std::vector<std::int32_t> positions = {3};
  double in[] = {1, 0, 1, 0}, out[4];
  Args args{.qk = Contiguous(in, DataType::kF64, {4, 1, 1, 1}),
            .positions = Ints(positions),
            .factors = {},
            .out = Contiguous(out, DataType::kF64, {4, 1, 1, 1}),
            .params = {.mode = RopeMode::kInterleaved, .dims = 4, .base = 100.0f}};
  ASSERT_TRUE(Reference(args));
  EXPECT_NEAR(out[0], std::cos(3.0), 1e-15);
  EXPECT_NEAR(out[1], std::sin(3.0), 1e-15);
  EXPECT_NEAR(out[2], std::cos(0.3), 1e-15);
  EXPECT_NEAR(out[3], std::sin(0.3), 1e-15);
  args.params.mode = RopeMode::kHalfSplit;
  ASSERT_TRUE(Reference(args));
  EXPECT_NEAR(out[0], std::cos(3.0) - std::sin(3.0), 1e-15);
  EXPECT_NEAR(out[2], std::sin(3.0) + std::cos(3.0), 1e-15);
  EXPECT_EQ(out[1], 0);
}

TEST_F(RopeTest, Llama3ScalingKeepsShortWavesAndSlowsLongOnes) {
  const RopeParams params{.dims = 128,
                          .base = 500000.0f,
                          .scaling_factor = 8.0f,
                          .low_freq_factor = 1.0f,
                          .high_freq_factor = 4.0f,
                          .original_context = 8192};
  RopeParams plain = params;
  plain.scaling_factor = 0;
  const auto scaled = Table::Make(params, nullptr, 0).value().frequencies();
  const auto original = Table::Make(plain, nullptr, 0).value().frequencies();
  int kept = 0, slowed = 0, between = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const double wavelength = 2 * M_PI / original[i];
    const double ratio = original[i] / scaled[i];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(ratio, 1) << i;
      ++kept;
    } else if (wavelength > 8192.0) {
      EXPECT_NEAR(ratio, 8, 1e-12) << i;
      ++slowed;
    } else {
      EXPECT_GT(ratio, 1) << i;
      EXPECT_LT(ratio, 8) << i;
      ++between;
    }
  }
  EXPECT_GT(kept, 10);
  EXPECT_GT(slowed, 10);
  EXPECT_GT(between, 2);
  // The explicit factors that converters write for these models are these ratios.
  std::vector<float> factors;
  for (std::size_t i = 0; i < 64; ++i)
    factors.push_back(static_cast<float>(original[i] / scaled[i]));
  const auto by_factor = Table::Make(plain, factors.data(), 0).value().frequencies();
  for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(by_factor[i] / scaled[i], 1, 1e-7);
}

TEST_F(RopeTest, ExplicitFactorsDivideTheAngles) {
  std::vector<std::int32_t> positions = {5};
  std::vector<float> in = {1, 0, 1, 0}, factors = {2, 5};
  for (Kernel* kernel : Kernels()) {
    std::vector<float> out(4);
    Args args{.qk = Contiguous(in.data(), DataType::kF32, {4, 1, 1, 1}),
              .positions = Ints(positions),
              .factors = Contiguous(factors.data(), DataType::kF32, {2, 1, 1, 1}),
              .out = Contiguous(out.data(), DataType::kF32, {4, 1, 1, 1}),
              .params = {.dims = 4, .base = 100.0f}};
    ASSERT_TRUE(LaunchOnce<Op>(*kernel, args, Stream{}));
    EXPECT_FLOAT_EQ(out[0], std::cos(2.5f));
    EXPECT_FLOAT_EQ(out[2], std::cos(0.1f));
  }
}

TEST_F(RopeTest, APositionBelowPaddingIsRefusedBeforeAnythingIsWritten) {
  std::vector<std::int32_t> positions = {0, 1, -2};
  std::vector<float> data(12, 1.0f);
  Args args{.qk = Contiguous(data.data(), DataType::kF32, {4, 1, 3, 1}),
            .positions = Ints(positions),
            .factors = {},
            .out = Contiguous(data.data(), DataType::kF32, {4, 1, 3, 1}),
            .params = {.dims = 4}};
  for (Kernel* kernel : Kernels()) {
    const Status status = LaunchOnce<Op>(*kernel, args, Stream{});
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("positions[2] = -2"), std::string::npos)
        << status.error().message;
    EXPECT_EQ(data, std::vector<float>(12, 1.0f));
  }
}

TEST_F(RopeTest, BadParametersAreRefusedByName) {
  EXPECT_FALSE(Table::Make({.dims = 3}, nullptr, 1));
  EXPECT_FALSE(Table::Make({.dims = 0}, nullptr, 1));
  EXPECT_FALSE(Table::Make({.dims = 2048}, nullptr, 1));
  EXPECT_FALSE(Table::Make({.dims = 4, .base = 0}, nullptr, 1));
  EXPECT_FALSE(Table::Make(
      {.dims = 4, .scaling_factor = 8, .low_freq_factor = 4, .high_freq_factor = 4}, nullptr, 1));
  const float zero[] = {1, 0};
  EXPECT_FALSE(Table::Make({.dims = 4}, zero, 1));
  std::vector<std::int32_t> positions = {0};
  std::vector<float> data(4);
  Args args{.qk = Contiguous(data.data(), DataType::kF32, {4, 1, 1, 1}),
            .positions = Ints(positions),
            .factors = {},
            .out = Contiguous(data.data(), DataType::kF32, {4, 1, 1, 1}),
            .params = {.dims = 6}};
  EXPECT_FALSE(LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{})) << "dims above head_dim";
  args.params.dims = 4;
  const Table other = Table::Make({.dims = 4, .base = 5}, nullptr, 4).value();
  args.table = &other;
  EXPECT_FALSE(LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{}))
      << "a table of other parameters";
  args.table = nullptr;
  args.positions.shape[0] = 0;
  EXPECT_FALSE(LaunchOnce<Op>(*registry_.kernels()[0], args, Stream{})) << "too few positions";
}

TEST_F(RopeTest, TheWidestKernelOfTheDeviceIsChosen) {
  const Desc desc{.rows = 1, .heads = 9, .head_dim = 64, .dims = 64};
  EXPECT_EQ(
      Choose(Feasible(*Validate(desc), registry_, DeviceSpec{}), nullptr).value().kernel().name(),
      "rope.f32.scalar");
  DeviceSpec device;
  device.features = kFeatureAvx2 | kFeatureAvx512;
  EXPECT_EQ(Choose(Feasible(*Validate(desc), registry_, device), nullptr).value().kernel().name(),
            "rope.f32.avx512");
}

TEST_F(RopeTest, ARowOfPaddingIsLeftAsItIs) {
  std::vector<std::int32_t> positions = {3, -1, 3};
  std::vector<float> in(12);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 4 + 1);
  const Table table = Table::Make({.dims = 4}, nullptr, 8).value();
  for (Kernel* kernel : Kernels()) {
    for (const Table* with : {static_cast<const Table*>(nullptr), &table}) {
      std::vector<float> out(12, 7.0f);
      ASSERT_TRUE(LaunchOnce<Op>(*kernel,
                                 {.qk = Contiguous(in.data(), DataType::kF32, {4, 1, 3, 1}),
                                  .positions = Ints(positions),
                                  .factors = {},
                                  .out = Contiguous(out.data(), DataType::kF32, {4, 1, 3, 1}),
                                  .params = {.dims = 4},
                                  .table = with},
                                 Stream{}));
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(out[4 + i], 7.0f) << kernel->name();
        EXPECT_NE(out[i], 7.0f);
        EXPECT_EQ(out[8 + i], out[i]);
      }
    }
  }
}

TEST_F(RopeTest, TablesAreSharedByParametersAndFactorValuesAndNeverReplaced) {
  Tables tables;
  std::vector<float> factors = {2, 5}, same = {2, 5}, others = {2, 6};
  const auto prepared = [&](std::vector<float>* values, float base, std::int64_t positions) {
    Args args{
        .qk = {}, .positions = {}, .factors = {}, .out = {}, .params = {.dims = 4, .base = base}};
    if (values != nullptr) args.factors = Contiguous(values->data(), DataType::kF32, {2, 1, 1, 1});
    EXPECT_TRUE(tables.Prepare(args, HostDevice(), Stream{}, positions));
    return args.table;
  };
  const Table* first = prepared(&factors, 100, 10);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->positions(), 10);
  EXPECT_EQ(prepared(&same, 100, 10), first) << "equal values elsewhere in memory";
  EXPECT_EQ(prepared(&same, 100, 0), first) << "a call that asks for less";
  EXPECT_NE(prepared(&others, 100, 10), first);
  EXPECT_NE(prepared(nullptr, 100, 10), first);
  EXPECT_NE(prepared(&factors, 50, 10), first);
  const Table* longer = prepared(&factors, 100, 20);
  EXPECT_NE(longer, first);
  EXPECT_EQ(longer->positions(), 20);
  EXPECT_EQ(first->positions(), 10) << "bound steps still point to it";
  for (std::int64_t p = 0; p < 10; ++p)
    EXPECT_TRUE(test::BitwiseEqual(first->Row(p), longer->Row(p), 4 * sizeof(float)));
  factors[0] = 3;
  EXPECT_NE(prepared(&factors, 100, 10), first) << "another model's factors at the same address";
  factors[0] = 0;
  Args bad{.qk = {},
           .positions = {},
           .factors = Contiguous(factors.data(), DataType::kF32, {2, 1, 1, 1}),
           .out = {},
           .params = {.dims = 4}};
  EXPECT_FALSE(tables.Prepare(bad, HostDevice(), Stream{}, 10));
  bad.params.dims = 4000;
  EXPECT_FALSE(tables.Prepare(bad, HostDevice(), Stream{}, 10));
}

TEST_F(RopeTest, EveryFieldOfTheProblemIsInItsKey) {
  test::ExpectEveryFieldInTheKey<Op>(Desc{.rows = 3, .heads = 9});
}

}  // namespace
}  // namespace tilewright::rope
