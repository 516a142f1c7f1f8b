#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/test_util.h"
#include "ops/elementwise/cuda/elementwise_cases.h"
#include "ops/elementwise/cuda/elementwise_kernel.cuh"
#include "ops/elementwise/cuda/elementwise_launch.h"
#include "ops/elementwise/cuda/families.h"

// The source of the kernels, run on the CPU as ElementwiseLaunch launches them, against the float64
// oracle of the room.

namespace tilewright {
namespace {

using elementwise::Function;
using tw::Type;

constexpr int kWarps = 1;
constexpr Function kFunctions[] = {Function::kAdd,     Function::kMul,          Function::kSilu,
                                   Function::kSwiGlu,  Function::kGelu,         Function::kGeGlu,
                                   Function::kSoftcap, Function::kClampedSwiGlu};

KernelSpec SpecOf(DataType a, DataType b, DataType out) {
  KernelSpec spec = ElementwiseFamily().catalog({90, 'a'}).front();
  spec.type_a = a;
  spec.type_b = b;
  spec.type_d = out;
  spec.warps = kWarps;
  EXPECT_EQ(ElementwiseFamily().check(spec), std::nullopt) << SpecName(spec);
  return spec;
}

template <Type kA, Type kB, Type kOut>
Status Emulate(const elementwise::Args& args) {
  const cuda::LaunchResult launch = ElementwiseLaunch(
      SpecOf(static_cast<DataType>(kA), static_cast<DataType>(kB), static_cast<DataType>(kOut)),
      args);
  if (!launch) return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
  const bool ran = tw::emulation::RunLaunch<tw::ElementwiseParams>(
      *launch, kWarps * 32, [](const tw::ElementwiseParams& p) {
        tw::Elementwise<kA, kB, kOut>{p}.Run(blockIdx.x * (kWarps * 32u) + threadIdx.x);
      });
  if (!ran) return Fail(ErrorCode::kInternal, "a launch that a GPU refuses, or a hang");
  return {};
}

template <Type kA, Type kB, Type kOut>
void ExpectFunctions() {
  for (const Function function : kFunctions) {
    if (elementwise::IsUnary(function) && kA != kB) continue;
    for (const auto& one :
         elementwise::CudaCases(function, static_cast<DataType>(kA), static_cast<DataType>(kB),
                                static_cast<DataType>(kOut))) {
      EXPECT_EQ(test::RunCase(one, &elementwise::Reference,
                              [](const auto& call, test::Arena& arena) {
                                return Emulate<kA, kB, kOut>(call.At(arena.base()));
                              }),
                "");
    }
  }
}

TEST(ElementwiseKernelTest, EveryFunctionOfOneTypeIsRight) {
  ExpectFunctions<Type::kF32, Type::kF32, Type::kF32>();
  ExpectFunctions<Type::kBF16, Type::kBF16, Type::kBF16>();
  ExpectFunctions<Type::kF16, Type::kF16, Type::kF16>();
}

TEST(ElementwiseKernelTest, TypesMayDiffer) {
  ExpectFunctions<Type::kF32, Type::kBF16, Type::kF32>();
  ExpectFunctions<Type::kBF16, Type::kF32, Type::kF16>();
  ExpectFunctions<Type::kF16, Type::kBF16, Type::kF32>();
  ExpectFunctions<Type::kF32, Type::kF32, Type::kBF16>();
}

TEST(ElementwiseKernelTest, TheExponentialIsGoodToTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (int i = -8600; i <= 8870; ++i) {
    const float x = static_cast<float>(i) / 100;
    worst = std::max(worst, test::UlpError(tw::ExpOf(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2);
  EXPECT_GT(worst, 0);
  EXPECT_EQ(tw::ExpOf(0.0f), 1.0f);
  EXPECT_EQ(tw::ExpOf(1e30f), HUGE_VALF);
  EXPECT_EQ(tw::ExpOf(HUGE_VALF), HUGE_VALF);
  EXPECT_LT(tw::ExpOf(-HUGE_VALF), 1e-37f);
}

TEST(ElementwiseKernelTest, SiluKeepsNaNAndItsLimits) {
  EXPECT_TRUE(std::isnan(tw::SiluOf(NAN)));
  EXPECT_EQ(tw::SiluOf(HUGE_VALF), HUGE_VALF);
  EXPECT_EQ(tw::SiluOf(-3e38f), 0.0f);
  EXPECT_EQ(tw::SiluOf(0.0f), 0.0f);
}

TEST(ElementwiseKernelTest, TanhIsGoodToFourUnitsInTheLastPlace) {
  double worst = 0;
  for (int i = -200000; i <= 200000; ++i) {
    const float x = static_cast<float>(i) / 16384;
    worst = std::max(worst, test::UlpError(tw::TanhOf(x), std::tanh(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 4);
  EXPECT_GT(worst, 0);
  EXPECT_EQ(tw::TanhOf(0.0f), 0.0f);
  EXPECT_EQ(tw::TanhOf(1e-30f), 1e-30f);
  EXPECT_EQ(tw::TanhOf(HUGE_VALF), 1.0f);
  EXPECT_EQ(tw::TanhOf(-HUGE_VALF), -1.0f);
  EXPECT_TRUE(std::isnan(tw::TanhOf(NAN)));
}

TEST(ElementwiseKernelTest, GeluKeepsNaNAndItsLimits) {
  EXPECT_TRUE(std::isnan(tw::GeluOf(NAN)));
  EXPECT_EQ(tw::GeluOf(HUGE_VALF), HUGE_VALF);
  EXPECT_EQ(tw::GeluOf(3e38f), 3e38f);
  EXPECT_EQ(tw::GeluOf(-3e38f), 0.0f);
  EXPECT_EQ(tw::GeluOf(0.0f), 0.0f);
}

TEST(ElementwiseLaunchTest, JoinsRowsAndReadsWideWhereAddressesAllow) {
  alignas(16) float memory[4096] = {};
  const KernelSpec spec = SpecOf(DataType::kF32, DataType::kF32, DataType::kF32);
  elementwise::Args args{.function = Function::kAdd, .a = {}, .b = {}, .out = {}};
  args.a = args.b = args.out = Contiguous(memory, DataType::kF32, {12, 5, 2, 1});
  const auto params = [&] {
    const cuda::LaunchResult launch = ElementwiseLaunch(spec, args);
    EXPECT_TRUE(launch) << launch.error().ToString();
    return *launch->params.As<cuda::ElementwiseParams>();
  };
  EXPECT_EQ(params().cols, 120);
  EXPECT_EQ(params().items, 15u);
  EXPECT_EQ(params().wide, 1);
  args.b.stride = {1, 0, 0, 0};
  EXPECT_EQ(params().cols, 12);
  EXPECT_EQ(params().extents[0], 10u) << "both dimensions of rows in one";
  EXPECT_EQ(params().items, 20u);
  EXPECT_EQ(params().wide, 1);
  args.a.data = memory + 1;
  EXPECT_EQ(params().wide, 0);
  EXPECT_EQ(params().items, 120u);
}

TEST(ElementwiseLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  alignas(16) float memory[64] = {};
  KernelSpec spec = SpecOf(DataType::kF32, DataType::kF32, DataType::kF32);
  elementwise::Args good{.function = Function::kAdd, .a = {}, .b = {}, .out = {}};
  good.a = good.b = good.out = Contiguous(memory, DataType::kF32, {16, 2, 1, 1});
  ASSERT_TRUE(ElementwiseLaunch(spec, good));
  const auto refused = [&](auto change, const char* words) {
    elementwise::Args args = good;
    change(args);
    const cuda::LaunchResult no = ElementwiseLaunch(spec, args);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  using elementwise::Args;
  refused([](Args& a) { a.a.dtype = DataType::kBF16; }, "a bf16, needs f32");
  refused([](Args& a) { a.b.shape[1] = 1; }, "b [16, 1, 1, 1], needs [16, 2, 1, 1]");
  refused([](Args& a) { a.out.data = nullptr; }, "out is null");
  refused([](Args& a) { a.b.stride[0] = 2; }, "elements of a row apart");
  refused([](Args& a) { a.out.stride[1] = -16; }, "a stride of -16");
  refused([](Args& a) { a.a.shape[0] = a.b.shape[0] = a.out.shape[0] = 1ll << 40; },
          "an extent of");
  refused([](Args& a) { a.b.data = a.b.as<char>() + 2; }, "a multiple of 4 bytes");
  spec.family = "rmsnorm";
  refused([](Args&) {}, "a kernel of rmsnorm");
}

TEST(ElementwiseFamilyTest, EverySpecPassesItsCheckAndNoOtherFieldMayBeSet) {
  KernelFamilies families;
  ASSERT_TRUE(AddElementwiseFamilies(families));
  const KernelFamily& family = *families.Find("elementwise");
  const std::vector<KernelSpec> all = families.Catalog({90, 'a'});
  EXPECT_EQ(all.size(), 27u);
  for (const KernelSpec& spec : all) {
    EXPECT_FALSE(family.check(spec).has_value()) << SpecName(spec);
    EXPECT_EQ(std::count(all.begin(), all.end(), spec), 1);
  }
  EXPECT_TRUE(families.Catalog({75, 0}).empty());
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = all.front();
    change(spec);
    const auto no = family.check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_NE(no->ToString().find(word), std::string::npos) << no->ToString();
  };
  refused([](KernelSpec& s) { s.type_b = DataType::kNone; }, "type_b");
  refused([](KernelSpec& s) { s.type_d = DataType::kQ4_0; }, "type_d");
  refused([](KernelSpec& s) { s.warps = 33; }, "warps = 33");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kAdd; }, "does not use");
}

}  // namespace
}  // namespace tilewright
