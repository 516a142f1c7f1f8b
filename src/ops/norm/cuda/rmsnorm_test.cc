#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "ops/norm/cuda/families.h"
#include "ops/norm/cuda/rmsnorm_kernel.cuh"
#include "ops/norm/cuda/rmsnorm_launch.h"

// The source of the kernel, run on the CPU as RmsNormLaunch launches it, against float64.

namespace tilewright {
namespace {

using tw::Type;

constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }

/// A matrix of any float type, padding and guards NaN, and its values.
template <Type kType>
struct Matrix {
  Matrix(std::size_t rows, std::size_t cols, std::size_t pad, std::size_t shift)
      : width(cols), stride(cols + pad), bytes(rows * stride * kBytes, shift * kBytes) {}
  Matrix(std::size_t rows, std::size_t cols, std::size_t pad, std::size_t shift, std::uint64_t seed)
      : Matrix(rows, cols, pad, shift) {
    for (std::size_t r = 0; r < rows; ++r) {
      const std::vector<float> row = test::RandomFloats(cols, seed + r);
      EXPECT_TRUE(EncodeRow(DataTypeOf(kType), row.data(), static_cast<std::int64_t>(cols), At(r)));
    }
  }
  unsigned char* At(std::size_t row) {
    return static_cast<unsigned char*>(bytes.data()) + row * stride * kBytes;
  }
  TensorView View() {
    const auto n = [](std::size_t value) { return static_cast<std::int64_t>(value); };
    const std::size_t rows = bytes.size() / kBytes / stride;
    return {At(0), {n(width), n(rows), 1, 1}, {1, n(stride), 0, 0}, DataTypeOf(kType)};
  }
  std::vector<float> Row(std::size_t row, std::size_t count) {
    std::vector<float> values(count);
    EXPECT_TRUE(
        DecodeRow(DataTypeOf(kType), At(row), static_cast<std::int64_t>(count), values.data()));
    return values;
  }
  static constexpr std::size_t kBytes = kType == Type::kF32 ? 4 : 2;
  std::size_t width, stride;
  test::GuardedBytes bytes;
};

double Epsilon(Type type) {
  return type == Type::kF32 ? 0x1p-21 : type == Type::kF16 ? 0x1p-11 : 0x1p-8;
}

template <Type kA, Type kB, Type kC, Type kD, int kWarps, int kPacks>
void ExpectNorm(std::size_t rows, std::size_t width, std::size_t pad = 0, std::size_t shift = 0) {
  SCOPED_TRACE(testing::Message() << rows << " x " << width << " pad " << pad << " shift "
                                  << shift);
  constexpr bool kAdds = kC != Type::kNone;
  constexpr Type kSum = kAdds ? kC : Type::kF32;
  Matrix<kA> in(rows, width, pad, shift, 1);
  Matrix<kB> weight(1, width, 0, shift, 77);
  Matrix<kSum> residual(rows, width, pad, shift, 1000);
  Matrix<kD> out(rows, width, pad, shift);
  const float epsilon = 1e-5f;
  std::vector<std::vector<float>> sums;
  for (std::size_t r = 0; r < rows; ++r) {
    sums.push_back(in.Row(r, width));
    if (!kAdds) continue;
    const std::vector<float> other = residual.Row(r, width);
    for (std::size_t c = 0; c < width; ++c) sums[r][c] = tw::RoundTo<kSum>(sums[r][c] + other[c]);
  }

  KernelSpec spec;
  spec.family = "rmsnorm";
  spec.arch = {90, 'a'};
  spec.type_a = DataTypeOf(kA);
  spec.type_b = DataTypeOf(kB);
  spec.type_c = DataTypeOf(kC);
  spec.type_d = DataTypeOf(kD);
  spec.order_a = spec.order_b = Order::kRowMajor;
  spec.epilogue = kAdds ? SpecEpilogue::kAdd : SpecEpilogue::kScale;
  spec.warps = kWarps;
  spec.params = {kPacks, 0, 0, 0};
  ASSERT_EQ(RmsNormFamily().check(spec), std::nullopt) << SpecName(spec);
  AddNormArgs args;
  args.norm = {.in = in.View(), .weight = weight.View(), .out = out.View(), .epsilon = epsilon};
  if (kAdds) args.residual = args.sum = residual.View();  // in place, as a residual stream is
  const cuda::LaunchResult launch = RmsNormLaunch(spec, args);
  ASSERT_TRUE(launch) << launch.error().ToString();
  const bool ran = tw::emulation::RunLaunch<tw::RmsNormParams>(
      *launch, kWarps * 32, [](const tw::RmsNormParams& p) {
        __shared__ float scratch[kWarps];
        tw::RmsNorm<kA, kB, kC, kD, kWarps, kPacks>{p, static_cast<int>(blockIdx.x), scratch}.Run();
      });
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
  EXPECT_EQ(out.bytes.Damage() + residual.bytes.Damage() + in.bytes.Damage(), "");
  const std::vector<float> weights = weight.Row(0, width);
  for (std::size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (const float h : sums[r]) squares += static_cast<double>(h) * static_cast<double>(h);
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(epsilon));
    const std::vector<float> got = out.Row(r, r + 1 < rows ? width + pad : width);
    if (kAdds) {
      ASSERT_EQ(residual.Row(r, width), sums[r]) << "the sum, bit for bit";
    }
    for (std::size_t c = 0; c < got.size(); ++c) {
      if (c >= width) {
        ASSERT_TRUE(std::isnan(got[c])) << "padding was written";
        continue;
      }
      const double want = static_cast<double>(sums[r][c]) * scale * static_cast<double>(weights[c]);
      ASSERT_NEAR(static_cast<double>(got[c]), want, Epsilon(kD) * std::fabs(want) + 1e-7)
          << r << " " << c;
    }
  }
}

TEST(RmsNormKernelTest, ARowInRegistersIsNormalised) {
  ExpectNorm<Type::kF32, Type::kF32, Type::kNone, Type::kF32, 2, 2>(3, 512);
  ExpectNorm<Type::kF32, Type::kF32, Type::kNone, Type::kBF16, 2, 2>(3, 260, 4);
  ExpectNorm<Type::kBF16, Type::kF32, Type::kNone, Type::kBF16, 1, 2>(2, 64, 8);
  ExpectNorm<Type::kF16, Type::kF16, Type::kNone, Type::kF32, 1, 3>(2, 576);
}

TEST(RmsNormKernelTest, ARowWiderThanTheRegistersIsReadTwice) {
  ExpectNorm<Type::kF32, Type::kF32, Type::kNone, Type::kF32, 2, 1>(2, 1032);
  ExpectNorm<Type::kBF16, Type::kBF16, Type::kBF16, Type::kBF16, 2, 1>(2, 2056);
}

TEST(RmsNormKernelTest, AnyWidthAndAlignmentWorks) {
  for (const std::size_t width : {1, 2, 31, 33, 577}) {
    ExpectNorm<Type::kF32, Type::kF32, Type::kNone, Type::kF32, 2, 2>(3, width);
    ExpectNorm<Type::kBF16, Type::kF32, Type::kBF16, Type::kBF16, 4, 2>(3, width, 3);
  }
  ExpectNorm<Type::kF32, Type::kF32, Type::kF32, Type::kF32, 2, 2>(2, 512, 0, 1);
  ExpectNorm<Type::kBF16, Type::kF32, Type::kNone, Type::kF32, 2, 2>(2, 512, 4);
}

TEST(RmsNormKernelTest, TheSumOfAResidualIsRoundedWrittenAndNormalised) {
  ExpectNorm<Type::kF32, Type::kF32, Type::kF32, Type::kF32, 2, 2>(3, 512);
  ExpectNorm<Type::kBF16, Type::kF32, Type::kBF16, Type::kBF16, 2, 4>(3, 1600, 8);
  ExpectNorm<Type::kBF16, Type::kF32, Type::kF32, Type::kBF16, 2, 2>(3, 512);
  ExpectNorm<Type::kF32, Type::kF32, Type::kF32, Type::kF16, 2, 1>(3, 1032);
  ExpectNorm<Type::kF16, Type::kF32, Type::kF32, Type::kF16, 2, 1>(2, 1031, 3);
}

TEST(RmsNormKernelTest, HeadsOfRowsAreNormalisedInPlaceAndWhatLiesBesideThemIsNot) {
  constexpr std::size_t kCols = 80, kHeads = 3, kRows = 4, kLine = 400;
  for (const std::size_t first : {std::size_t{0}, std::size_t{83}}) {  // wide loads, and none
    Matrix<Type::kF32> lines(kRows, kLine, 0, 0, 5);
    Matrix<Type::kF32> weight(1, kCols, 0, 0, 77);
    std::vector<std::vector<float>> before;
    for (std::size_t r = 0; r < kRows; ++r) before.push_back(lines.Row(r, kLine));
    KernelSpec spec = NormSpecs(kCols, {90, 'a'}).front();
    spec.warps = 1, spec.params[0] = 1;
    AddNormArgs args;
    args.norm.in = args.norm.out = {lines.At(0) + first * 4,
                                    {kCols, kHeads, kRows, 1},
                                    {1, kCols, kLine, kRows * kLine},
                                    DataType::kF32};
    args.norm.weight = weight.View();
    const cuda::LaunchResult launch = RmsNormLaunch(spec, args);
    ASSERT_TRUE(launch) << launch.error().ToString();
    EXPECT_EQ(launch->grid[0], kHeads * kRows);
    const bool ran =
        tw::emulation::RunLaunch<tw::RmsNormParams>(*launch, 32, [](const tw::RmsNormParams& p) {
          __shared__ float scratch[1];
          tw::RmsNorm<Type::kF32, Type::kF32, Type::kNone, Type::kF32, 1, 1>{
              p, static_cast<int>(blockIdx.x), scratch}
              .Run();
        });
    EXPECT_TRUE(ran);
    const std::vector<float> weights = weight.Row(0, kCols);
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::vector<float> after = lines.Row(r, kLine);
      for (std::size_t i = 0; i < kLine; ++i) {
        const bool beside = i < first || i >= first + kHeads * kCols;
        const std::size_t c = beside ? 0 : (i - first) % kCols;
        double squares = 0;
        for (std::size_t j = 0; j < kCols && !beside; ++j)
          squares += std::pow(double{before[r][i - c + j]}, 2);
        const double want =
            beside ? before[r][i]
                   : before[r][i] / std::sqrt(squares / kCols + args.norm.epsilon) * weights[c];
        ASSERT_NEAR(after[i], want, beside ? 0 : 1e-5) << r << " " << i;
      }
    }
  }
}

TEST(RmsNormLaunchTest, FindsGroupsOfRowsThatAllViewsHave) {
  float memory[64] = {};
  const KernelSpec spec = NormSpecs(16, {90, 'a'}).front();
  AddNormArgs args;
  args.norm.weight = Contiguous(memory, DataType::kF32, {16, 1, 1, 1});
  const auto params = [&](std::array<std::int64_t, 4> shape, std::array<std::int64_t, 4> in,
                          std::array<std::int64_t, 4> out) {
    args.norm.in = {memory, shape, in, DataType::kF32};
    args.norm.out = {memory, shape, out, DataType::kF32};
    const cuda::LaunchResult launch = RmsNormLaunch(spec, args);
    EXPECT_TRUE(launch) << launch.error().ToString();
    return launch ? *launch->params.As<cuda::RmsNormParams>() : cuda::RmsNormParams{};
  };
  // Heads of a merged projection to heads side by side.
  cuda::RmsNormParams p = params({16, 3, 5, 1}, {1, 16, 100, 0}, {1, 16, 48, 240});
  EXPECT_EQ(p.rows, 15);
  EXPECT_EQ(p.group_rows, 3);
  EXPECT_EQ(p.in_stride, 16);
  EXPECT_EQ(p.in_group, 100);
  EXPECT_EQ(p.out_stride, 16);
  EXPECT_EQ(p.out_group, 48);
  // All at one distance, though dimensions of 1 have any.
  p = params({16, 1, 5, 2}, {1, 7, 20, 100}, {1, 9, 16, 80});
  EXPECT_EQ(p.group_rows, 10);
  EXPECT_EQ(p.in_stride, 20);
  EXPECT_EQ(p.out_stride, 16);
  // The outer two dimensions are one.
  p = params({16, 3, 5, 2}, {1, 16, 100, 500}, {1, 16, 48, 240});
  EXPECT_EQ(p.group_rows, 3);
  EXPECT_EQ(p.in_group, 100);
  EXPECT_EQ(p.rows, 30);
  p = params({16, 1, 1, 1}, {1, 0, 0, 0}, {1, 0, 0, 0});
  EXPECT_EQ(p.group_rows, 1);
}

TEST(RmsNormLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  float memory[64] = {};
  const KernelSpec plain = NormSpecs(16, {90, 'a'}).front();
  KernelSpec adds = plain;
  adds.epilogue = SpecEpilogue::kAdd;
  adds.type_c = DataType::kF32;
  AddNormArgs good;
  good.norm.in = good.norm.out = Contiguous(memory, DataType::kF32, {16, 2, 2, 1});
  good.norm.weight = Contiguous(memory, DataType::kF32, {16, 1, 1, 1});
  const cuda::LaunchResult launch = RmsNormLaunch(plain, good);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{4, 1, 1}));
  EXPECT_EQ(launch->block[0], 32u * plain.warps);
  const auto refused = [](const KernelSpec& spec, AddNormArgs args, auto change,
                          const char* words) {
    change(args);
    const cuda::LaunchResult no = RmsNormLaunch(spec, args);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  refused(
      plain, good, [](AddNormArgs& a) { a.norm.in.dtype = DataType::kBF16; }, "in bf16, needs f32");
  refused(
      plain, good, [](AddNormArgs& a) { a.norm.weight.shape[0] = 15; }, "weight of 1 rows of 15");
  refused(
      plain, good,
      [](AddNormArgs& a) {
        a.norm.in = a.norm.out = Contiguous(a.norm.in.data, DataType::kF32, {16, 2, 2, 2});
        a.norm.out.stride = {1, 20, 50, 110};
      },
      "three distances");
  refused(
      plain, good, [](AddNormArgs& a) { a.norm.in.stride[0] = 2; }, "adjacent elements");
  refused(
      plain, good, [](AddNormArgs& a) { a.norm.out.data = nullptr; }, "out is null");
  refused(
      plain, good, [](AddNormArgs& a) { a.norm.in.shape[1] = 0; }, "0 rows of 16");
  refused(
      plain, good,
      [](AddNormArgs& a) { a.norm.in.data = reinterpret_cast<char*>(a.norm.in.data) + 2; },
      "a multiple of its element");
  refused(
      plain, good, [](AddNormArgs& a) { a.sum = a.residual = a.norm.in; }, "a residual");
  refused(
      adds, good, [](AddNormArgs&) {}, "residual");
  KernelSpec other = plain;
  other.family = "rope_kv";
  refused(
      other, good, [](AddNormArgs&) {}, "a kernel of rope_kv");
}

TEST(RmsNormFamilyTest, EverySpecPassesItsCheckAndKeepsTheRowWhereItCan) {
  KernelFamilies families;
  ASSERT_TRUE(AddNormFamilies(families));
  const KernelFamily& family = *families.Find("rmsnorm");
  for (const CudaArch arch : {CudaArch{80, 0}, CudaArch{90, 'a'}, CudaArch{120, 0}}) {
    for (const KernelSpec& spec : families.Catalog(arch)) {
      const auto no = family.check(spec);
      EXPECT_FALSE(no.has_value()) << no->ToString();
    }
    for (const int width : {1, 576, 4096, 8192, 16384}) {
      const std::vector<KernelSpec> specs = NormSpecs(width, arch);
      ASSERT_EQ(specs.size(), 2u + 4u + 4u + 4u + 2u + 2u);
      for (const KernelSpec& spec : specs) {
        EXPECT_FALSE(family.check(spec).has_value());
        EXPECT_GE(cuda::RmsNormCapacity(spec.warps, spec.params[0], spec.type_a == DataType::kF32),
                  width);
        EXPECT_EQ(std::count(specs.begin(), specs.end(), spec), 1);
      }
    }
    EXPECT_FALSE(family.check(NormSpecs(1 << 20, arch).front()).has_value());
  }
  EXPECT_TRUE(NormSpecs(0, {90, 'a'}).empty());
  EXPECT_TRUE(NormSpecs(64, {75, 0}).empty());
}

TEST(RmsNormFamilyTest, ASpecThatNoKernelHasIsRefusedWithItsField) {
  KernelFamilies families;
  ASSERT_TRUE(AddNormFamilies(families));
  const KernelSpec good = NormSpecs(4096, {90, 'a'}).front();
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = families.Find("rmsnorm")->check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_NE(no->ToString().find(word), std::string::npos) << no->ToString();
  };
  refused([](KernelSpec& s) { s.type_b = DataType::kQ4_0; }, "type_b");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kNone; }, "epilogue");
  refused([](KernelSpec& s) { s.warps = 33; }, "warps = 33");
  refused([](KernelSpec& s) { s.params[0] = 5; }, "param0 = 5");
  refused([](KernelSpec& s) { s.tile_m = 1; }, "tiles");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kAdd; }, "type_c");
}

}  // namespace
}  // namespace tilewright
