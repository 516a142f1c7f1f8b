#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/experts/cuda/families.h"
#include "ops/experts/cuda/route_cases.h"
#include "ops/experts/cuda/route_kernel.cuh"
#include "ops/experts/cuda/route_launch.h"

// The source of the kernels, run on the CPU as RouteLaunch launches them, against the oracle.

namespace tilewright::route {
namespace {

using tw::Type;

constexpr CudaArch kHopper{90, 'a'};
constexpr int kWarps = 16;

KernelSpec SpecOf(DataType type, int most_experts) {
  for (const KernelSpec& spec : RouteFamily().catalog(kHopper)) {
    EXPECT_EQ(RouteFamily().check(spec), std::nullopt) << SpecName(spec);
    if (spec.type_a == type && spec.params[0] == most_experts) return spec;
  }
  ADD_FAILURE() << "no kernel for " << DataTypeName(type);
  return {};
}

/// Scratch memory as a plan has it, poisoned but for the counters.
struct Scratch {
  explicit Scratch(const WorkspaceSize& size)
      : partials(size.partials, std::byte{0xff}), barriers(size.barriers) {
    workspace.partials = partials.data(), workspace.partials_size = partials.size();
    workspace.barriers = barriers.data(), workspace.barriers_size = barriers.size();
  }
  bool clean() const {
    return std::all_of(barriers.begin(), barriers.end(),
                       [](std::byte b) { return b == std::byte{0}; });
  }
  std::vector<std::byte> partials, barriers;
  Workspace workspace;
};

template <Type kType, int kMostExperts>
Status Emulate(const Args& args) {
  const KernelSpec spec = SpecOf(static_cast<DataType>(kType), kMostExperts);
  Scratch scratch(CudaWorkspace(spec, DescOf(args, {}).value(), {}));
  const cuda::LaunchResult launch = RouteLaunch(spec, args, scratch.workspace);
  if (!launch) return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
  // Where there is a workspace the second run finds what the first left in it.
  for (int run = 0; run < (scratch.barriers.empty() ? 1 : 2); ++run) {
    const bool ran = tw::emulation::RunLaunch<tw::RouteParams>(
        *launch, kWarps * 32, [](const tw::RouteParams& p) {
          using Kernel = tw::Route<kType, kMostExperts, kWarps>;
          __shared__ typename Kernel::Shared shared;
          Kernel{p, shared}.Run(static_cast<int>(blockIdx.x));
        });
    if (!ran) return Fail(ErrorCode::kInternal, "a launch that a GPU refuses, or a hang");
    if (!scratch.clean()) return Fail(ErrorCode::kInternal, "a counter is not zero again");
  }
  return {};
}

template <Type kType>
void ExpectRows() {
  for (const auto& one : CudaCases(static_cast<DataType>(kType))) {
    const auto expect = [&](auto emulate) {
      EXPECT_EQ(test::RunCase(one, &Reference,
                              [&](const auto& call, test::Arena& arena) {
                                return emulate(call.At(arena.base()));
                              }),
                "");
    };
    if (one.args.logits.shape[0] <= 128) expect(&Emulate<kType, 128>);
    if (one.args.logits.shape[0] > 128 || one.args.logits.shape[1] < 10)
      expect(&Emulate<kType, 1024>);
  }
}

TEST(RouteKernelTest, ChoosesWeighsAndPlacesTheExpertsOfEveryRow) {
  ExpectRows<Type::kF32>();
  ExpectRows<Type::kBF16>();
  ExpectRows<Type::kF16>();
}

/// Five rows of eight experts, of which two are used.
struct SmallRouting {
  SmallRouting()
      : args{.logits = Contiguous(logits.data(), DataType::kF32, {8, 5, 1, 1}),
             .offsets = Contiguous(offsets.data(), DataType::kI32, {9, 1, 1, 1}),
             .sources = Contiguous(sources.data(), DataType::kI32, {10, 1, 1, 1}),
             .places = Contiguous(places.data(), DataType::kI32, {2, 5, 1, 1}),
             .weights = Contiguous(weights.data(), DataType::kF32, {2, 5, 1, 1})} {}
  std::vector<float> logits = std::vector<float>(40), weights = std::vector<float>(10);
  std::vector<std::int32_t> offsets = std::vector<std::int32_t>(9),
                            sources = std::vector<std::int32_t>(10), places = sources;
  Args args;
};

TEST(RouteLaunchTest, ACtaHas32RowsAndSeveralNeedAWorkspace) {
  const KernelSpec spec = SpecOf(DataType::kF32, 128);
  EXPECT_EQ(CudaWorkspace(spec, {.rows = 32, .experts = 8, .used = 2}, {}).partials, 0u);
  const WorkspaceSize size = CudaWorkspace(spec, {.rows = 33, .experts = 8, .used = 2}, {});
  EXPECT_EQ(size.partials, 2 * 8 * 4u + 33 * 2 * 4u);
  EXPECT_EQ(size.barriers, 4u);
  SmallRouting small;
  const cuda::LaunchResult launch = RouteLaunch(spec, small.args, {});
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{1, 1, 1}));
  const auto large = MakeCase(DataType::kF32, {8, 2, 65}, true, false, 1);
  EXPECT_THAT(RouteLaunch(spec, large.args, {}).error().ToString(),
              testing::HasSubstr("a workspace of 0 bytes"));
  Scratch scratch(CudaWorkspace(spec, DescOf(large.args, {}).value(), {}));
  EXPECT_EQ(RouteLaunch(spec, large.args, scratch.workspace)->grid,
            (std::array<std::uint32_t, 3>{3, 1, 1}));
}

TEST(RouteLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  const KernelSpec spec = SpecOf(DataType::kF32, 128);
  const auto refused = [&](auto change, const char* words) {
    SmallRouting small;
    change(small.args);
    const cuda::LaunchResult no = RouteLaunch(spec, small.args, {});
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  refused([](Args& a) { a.logits.dtype = DataType::kBF16; }, "logits bf16");
  refused([](Args& a) { a.weights.dtype = DataType::kF16; }, "weights f16");
  refused([](Args& a) { a.offsets.shape[0] = 8; }, "offsets");
  refused([](Args& a) { a.sources.data = nullptr; }, "sources");
  refused([](Args& a) { a.logits.stride[0] = 2; }, "stride[0] = 2");
  refused([](Args& a) { a.places.data = reinterpret_cast<char*>(a.places.data) + 2; }, "places");
}

TEST(RouteFamilyTest, TakesAsManyExpertsAsItsRegistersHold) {
  const auto takes = [](const Desc& desc, int most_experts) {
    return !CudaFeasible(SpecOf(DataType::kF32, most_experts), desc).has_value();
  };
  EXPECT_TRUE(takes({.rows = 1, .experts = 128, .used = 8}, 128));
  EXPECT_FALSE(takes({.rows = 1, .experts = 129, .used = 8}, 128));
  EXPECT_TRUE(takes({.rows = 4096, .experts = 1024, .used = 32}, 1024));
  EXPECT_FALSE(takes({.rows = 1, .experts = 1025, .used = 8}, 1024));
  EXPECT_FALSE(takes({.rows = 1, .experts = 64, .used = 33}, 128));
  EXPECT_FALSE(takes({.type_logits = DataType::kF16, .experts = 8}, 128));
}

TEST(RouteFamilyTest, ASpecThatNoKernelHasIsRefusedWithItsField) {
  const KernelSpec good = SpecOf(DataType::kF32, 128);
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = RouteFamily().check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(word));
  };
  refused([](KernelSpec& s) { s.type_a = DataType::kQ4_0; }, "type_a");
  refused([](KernelSpec& s) { s.warps = 4; }, "warps = 4");
  refused([](KernelSpec& s) { s.params[0] = 64; }, "param0 = 64");
  refused([](KernelSpec& s) { s.tile_m = 1; }, "a field");
  EXPECT_TRUE(RouteFamily().catalog({75, 0}).empty());
}

}  // namespace
}  // namespace tilewright::route
