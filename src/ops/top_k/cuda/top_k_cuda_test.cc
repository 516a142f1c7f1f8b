#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/top_k/cuda/families.h"
#include "ops/top_k/cuda/top_k_cases.h"
#include "ops/top_k/cuda/top_k_kernel.cuh"
#include "ops/top_k/cuda/top_k_launch.h"

// The source of the kernels, run on the CPU as TopKLaunch launches them, against the oracle.

namespace tilewright::top_k {
namespace {

using tw::Type;

constexpr CudaArch kHopper{90, 'a'};
constexpr int kWarps = 8;

KernelSpec SpecOf(DataType in, int most_k) {
  for (const KernelSpec& spec : TopKFamily().catalog(kHopper)) {
    EXPECT_EQ(TopKFamily().check(spec), std::nullopt) << SpecName(spec);
    if (spec.type_a == in && spec.params[0] == most_k) return spec;
  }
  ADD_FAILURE() << "no kernel for " << DataTypeName(in);
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

template <Type kIn, int kMostK>
Status Emulate(const Args& args) {
  const KernelSpec spec = SpecOf(static_cast<DataType>(kIn), kMostK);
  Scratch scratch(CudaWorkspace(spec, DescOf(args, {}).value(), {}));
  const cuda::LaunchResult launch = TopKLaunch(spec, args, scratch.workspace);
  if (!launch) return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
  // A second run finds what the first left in the workspace; what is handed over would go on.
  const int runs = args.tokens.data == nullptr ? 2 : 1;
  for (int run = 0; run < runs; ++run) {
    const bool ran =
        tw::emulation::RunLaunch<tw::TopKParams>(*launch, kWarps * 32, [](const tw::TopKParams& p) {
          using Kernel = tw::TopK<kIn, kMostK, kWarps>;
          __shared__ typename Kernel::Shared shared;
          Kernel{p, shared, static_cast<int>(blockIdx.y)}.Run(static_cast<int>(blockIdx.x));
        });
    if (!ran) return Fail(ErrorCode::kInternal, "a launch that a GPU refuses, or a hang");
    if (!scratch.clean()) return Fail(ErrorCode::kInternal, "a counter is not zero again");
  }
  return {};
}

template <Type kIn>
void ExpectRows() {
  for (const auto& one : CudaCases(static_cast<DataType>(kIn))) {
    const bool best = one.args.ids.shape[0] == 1;
    EXPECT_EQ(test::RunCase(one, &Reference,
                            [&](const auto& call, test::Arena& arena) {
                              const Args args = call.At(arena.base());
                              return best ? Emulate<kIn, 1>(args) : Emulate<kIn, 64>(args);
                            }),
              "");
  }
}

TEST(TopKKernelTest, FindsTheBestOfEveryRow) {
  ExpectRows<Type::kF32>();
  ExpectRows<Type::kBF16>();
  ExpectRows<Type::kF16>();
}

TEST(TopKKernelTest, FindsTheBestOfTheWidestRows) {
  const auto best = MakeCase(DataType::kBF16, {262144, 1, 1, CaseValues::kTies}, false, 5);
  const auto many = MakeCase(DataType::kBF16, {262144, 1, 64}, true, 6);
  const auto run_best = [](const auto& call, test::Arena& arena) {
    return Emulate<Type::kBF16, 1>(call.At(arena.base()));
  };
  const auto run_many = [](const auto& call, test::Arena& arena) {
    return Emulate<Type::kBF16, 64>(call.At(arena.base()));
  };
  EXPECT_EQ(test::RunCase(best, &Reference, run_best), "");
  EXPECT_EQ(test::RunCase(many, &Reference, run_many), "");
}

TEST(TopKLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  std::vector<float> in(9000), values(2);
  std::vector<std::int32_t> ids(2);
  const Args good{Contiguous(in.data(), DataType::kF32, {4500, 2, 1, 1}),
                  Contiguous(ids.data(), DataType::kI32, {1, 2, 1, 1}),
                  Contiguous(values.data(), DataType::kF32, {1, 2, 1, 1})};
  const KernelSpec spec = SpecOf(DataType::kF32, 1);
  Scratch scratch(CudaWorkspace(spec, DescOf(good, {}).value(), {}));
  EXPECT_EQ(scratch.partials.size(), 2 * 2 * 8u);
  EXPECT_EQ(scratch.barriers.size(), 2 * 4u);
  const cuda::LaunchResult launch = TopKLaunch(spec, good, scratch.workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{2, 2, 1}));
  const auto refused = [&](Args args, auto change, const char* words) {
    change(args);
    const cuda::LaunchResult no = TopKLaunch(spec, args, scratch.workspace);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  refused(
      good, [](Args& a) { a.in.dtype = DataType::kBF16; }, "type_in = bf16");
  refused(
      good, [](Args& a) { a.values.dtype = DataType::kF16; }, "type_values = f16");
  refused(
      good, [](Args& a) { a.ids.shape[0] = a.values.shape[0] = 2; }, "k = 2");
  refused(
      good, [](Args& a) { a.in.stride[0] = 2; }, "stride[0] = 2");
  refused(
      good, [](Args& a) { a.ids.shape[1] = 1; }, "must be [cols, rows] to [k, rows]");
  refused(
      good, [](Args& a) { a.in.data = reinterpret_cast<char*>(a.in.data) + 2; }, "in");
  std::vector<std::int32_t> rows(4, 1);
  Args handing = good;
  for (TensorView Args::*view : {&Args::tokens, &Args::positions, &Args::turns, &Args::found})
    handing.*view = Contiguous(rows.data(), DataType::kI32, {2, 1, 1, 1});
  EXPECT_TRUE(TopKLaunch(spec, handing, scratch.workspace));
  refused(
      handing, [](Args& a) { a.turns.data = nullptr; }, "top_k: turns");
  refused(
      handing, [](Args& a) { a.found.data = reinterpret_cast<char*>(a.found.data) + 2; }, "found");
  const cuda::LaunchResult no = TopKLaunch(spec, good, Workspace{});
  ASSERT_FALSE(no);
  EXPECT_THAT(no.error().ToString(), testing::HasSubstr("a workspace of 0 bytes"));
}

TEST(TopKFamilyTest, TakesWhatItsCountersAndRegistersHold) {
  const auto takes = [](const Desc& desc, int most_k) {
    return !CudaFeasible(SpecOf(DataType::kF32, most_k), desc).has_value();
  };
  EXPECT_TRUE(takes({.rows = 256, .cols = 262144, .k = 64}, 64));
  EXPECT_FALSE(takes({.rows = 1, .cols = 262145, .k = 64}, 64));
  EXPECT_TRUE(takes({.rows = 1, .cols = 300000, .k = 40}, 64));
  EXPECT_FALSE(takes({.rows = 1, .cols = 300000, .k = 65}, 64));
  EXPECT_TRUE(takes({.rows = 65535, .cols = 100, .k = 2}, 64));
  EXPECT_FALSE(takes({.rows = 65536, .cols = 100, .k = 1}, 1));
  EXPECT_FALSE(takes({.rows = 1, .cols = 100, .k = 1}, 64)) << "that is the other kernel's";
  EXPECT_FALSE(takes({.rows = 1, .cols = 100, .k = 2}, 1));
  EXPECT_FALSE(takes({.type_in = DataType::kF16, .cols = 100}, 1));
}

TEST(TopKFamilyTest, ASpecThatNoKernelHasIsRefusedWithItsField) {
  const KernelSpec good = SpecOf(DataType::kF32, 64);
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = TopKFamily().check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(word));
  };
  refused([](KernelSpec& s) { s.type_a = DataType::kQ4_0; }, "type_a");
  refused([](KernelSpec& s) { s.warps = 4; }, "warps = 4");
  refused([](KernelSpec& s) { s.params[0] = 8; }, "param0 = 8");
  refused([](KernelSpec& s) { s.tile_m = 1; }, "a field");
  EXPECT_TRUE(TopKFamily().catalog({75, 0}).empty());
}

}  // namespace
}  // namespace tilewright::top_k
