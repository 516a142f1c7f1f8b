#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/experts/cuda/combine_cases.h"
#include "ops/experts/cuda/combine_kernel.cuh"
#include "ops/experts/cuda/combine_launch.h"
#include "ops/experts/cuda/families.h"

// The source of the kernels, run on the CPU as CombineLaunch launches them, against the oracle.

namespace tilewright::combine {
namespace {

using tw::Type;

constexpr int kWarps = 4;

KernelSpec SpecOf(DataType type) {
  for (const KernelSpec& spec : CombineFamily().catalog({90, 'a'})) {
    EXPECT_EQ(CombineFamily().check(spec), std::nullopt) << SpecName(spec);
    if (spec.type_a == type) return spec;
  }
  ADD_FAILURE() << "no kernel for " << DataTypeName(type);
  return {};
}

template <Type kType>
Status Emulate(const Args& args) {
  const cuda::LaunchResult launch = CombineLaunch(SpecOf(static_cast<DataType>(kType)), args);
  if (!launch) return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
  const bool ran = tw::emulation::RunLaunch<tw::CombineParams>(
      *launch, kWarps * 32, [](const tw::CombineParams& p) {
        using Kernel = tw::Combine<kType>;
        const auto thread = static_cast<int>(blockIdx.x * (kWarps * 32u) + threadIdx.x);
        Kernel{p}.Run(static_cast<int>(blockIdx.y), thread * Kernel::kPack);
      });
  if (!ran) return Fail(ErrorCode::kInternal, "a launch that a GPU refuses, or a hang");
  return {};
}

template <Type kType>
void ExpectSums() {
  for (const auto& one : CudaCases(static_cast<DataType>(kType))) {
    EXPECT_EQ(test::RunCase(one, &Reference,
                            [](const auto& call, test::Arena& arena) {
                              return Emulate<kType>(call.At(arena.base()));
                            }),
              "");
  }
}

TEST(CombineKernelTest, AddsUpWhatTheExpertsOfEveryRowComputed) {
  ExpectSums<Type::kF32>();
  ExpectSums<Type::kBF16>();
  ExpectSums<Type::kF16>();
}

/// Two rows of 16 values, of three experts each and a shared one.
struct SmallSum {
  SmallSum()
      : args{.x = Contiguous(values.data(), DataType::kF32, {16, 6, 1, 1}),
             .places = Contiguous(places.data(), DataType::kI32, {3, 2, 1, 1}),
             .weights = Contiguous(weights.data(), DataType::kF32, {3, 2, 1, 1}),
             .shared = Contiguous(shared.data(), DataType::kF32, {16, 2, 1, 1}),
             .gate = Contiguous(gate.data(), DataType::kF32, {1, 2, 1, 1}),
             .out = Contiguous(out.data(), DataType::kF32, {16, 2, 1, 1})} {}
  std::vector<float> values = std::vector<float>(96), shared = std::vector<float>(32), out = shared,
                     weights = std::vector<float>(6), gate = std::vector<float>(2);
  std::vector<std::int32_t> places = {0, 1, 2, 3, 4, 5};
  Args args;
};

TEST(CombineKernelTest, APlaceThatIsNoPairIsLeftOut) {
  SmallSum small;
  std::fill(small.values.begin(), small.values.end(), 1.0f);
  std::fill(small.weights.begin(), small.weights.end(), 0.5f);
  small.places = {0, 6, 2, -1, 4, std::numeric_limits<std::int32_t>::max()};
  small.args.shared.data = small.args.gate.data = nullptr;
  ASSERT_TRUE(Emulate<Type::kF32>(small.args));
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(small.out[i], i < 16 ? 1.0f : 0.5f) << i;
}

TEST(CombineLaunchTest, ReadsAndWritesWideWhereAddressesAllow) {
  const auto wide = [&](auto change) {
    SmallSum small;
    change(small.args);
    const cuda::LaunchResult launch = CombineLaunch(SpecOf(DataType::kF32), small.args);
    EXPECT_TRUE(launch) << launch.error().ToString();
    return launch ? launch->params.As<cuda::CombineParams>()->wide : -1;
  };
  EXPECT_EQ(wide([](Args&) {}), 1);
  EXPECT_EQ(wide([](Args& a) { a.x.stride[1] = 18; }), 0);
  EXPECT_EQ(wide([](Args& a) { a.out.data = a.out.as<float>() + 1; }), 0);
  EXPECT_EQ(wide([](Args& a) { a.shared.data = a.shared.as<float>() + 2; }), 0);
  EXPECT_EQ(wide([](Args& a) { a.gate.data = a.gate.as<float>() + 1; }), 1) << "read one by one";
}

TEST(CombineLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  const KernelSpec spec = SpecOf(DataType::kF32);
  {
    const auto rows = MakeCase(DataType::kF32, {1025, 2, 3}, 1);
    const cuda::LaunchResult launch = CombineLaunch(spec, rows.args);
    ASSERT_TRUE(launch) << launch.error().ToString();
    EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{2, 3, 1}));
  }
  const auto refused = [&](auto change, const char* words) {
    SmallSum small;
    change(small.args);
    const cuda::LaunchResult no = CombineLaunch(spec, small.args);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  refused([](Args& a) { a.x.dtype = DataType::kBF16; }, "x bf16");
  refused([](Args& a) { a.weights.dtype = DataType::kF16; }, "weights f16");
  refused([](Args& a) { a.places.shape[1] = 3; }, "places");
  refused([](Args& a) { a.x.stride[0] = 2; }, "stride[0] = 2");
  refused([](Args& a) { a.gate.data = nullptr; }, "gate");
  EXPECT_TRUE(CudaFeasible(spec, {.rows = 65536, .cols = 8, .used = 2}));
  EXPECT_FALSE(CudaFeasible(spec, {.rows = 65535, .cols = 8, .used = 2}));
}

TEST(CombineFamilyTest, ASpecThatNoKernelHasIsRefusedWithItsField) {
  const auto refused = [](auto change, const char* word) {
    KernelSpec spec = SpecOf(DataType::kF32);
    change(spec);
    const auto no = CombineFamily().check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(word));
  };
  refused([](KernelSpec& s) { s.type_a = DataType::kI32; }, "type_a");
  refused([](KernelSpec& s) { s.warps = 8; }, "warps = 8");
  refused([](KernelSpec& s) { s.params[0] = 1; }, "a field");
  EXPECT_TRUE(CombineFamily().catalog({75, 0}).empty());
}

}  // namespace
}  // namespace tilewright::combine
