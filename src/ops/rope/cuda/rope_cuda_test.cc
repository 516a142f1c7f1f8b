#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/rope/cuda/families.h"
#include "ops/rope/cuda/rope_cases.h"
#include "ops/rope/cuda/rope_kernel.cuh"
#include "ops/rope/cuda/rope_launch.h"

// The source of the kernels of `rope`, run on the CPU as RopeLaunch launches them, against the
// float64 oracle of the room.

namespace tilewright {
namespace {

using tw::Type;

constexpr int kWarps = 2;

KernelSpec SpecOf(DataType in, DataType out) {
  KernelSpec spec = RopeFamily().catalog({90, 'a'}).front();
  spec.type_a = in;
  spec.type_d = out;
  spec.warps = kWarps;
  EXPECT_EQ(RopeFamily().check(spec), std::nullopt) << SpecName(spec);
  return spec;
}

template <Type kIn, Type kOut>
Status Emulate(rope::Args args) {
  const Result<rope::Table> table =
      rope::Table::Make(args.params, args.factors.as<const float>(), 0);
  if (!table) return Fail(table.error());
  args.table = &*table;
  const cuda::LaunchResult launch =
      RopeLaunch(SpecOf(static_cast<DataType>(kIn), static_cast<DataType>(kOut)), args);
  if (!launch) return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
  const bool ran = tw::emulation::RunLaunch<tw::RopeHeadsParams>(
      *launch, kWarps * 32, [](const tw::RopeHeadsParams& p) {
        __shared__ tw::RopeTables tables;
        tw::RopeHeads<kIn, kOut, kWarps>{p, tables, static_cast<int>(blockIdx.x)}.Run();
      });
  if (!ran) return Fail(ErrorCode::kInternal, "a launch that a GPU refuses, or a hang");
  return {};
}

template <Type kIn, Type kOut>
void ExpectTurned() {
  for (const auto& one : rope::CudaCases(static_cast<DataType>(kIn), static_cast<DataType>(kOut))) {
    EXPECT_EQ(test::RunCase(one, &rope::Reference,
                            [](const auto& call, test::Arena& arena) {
                              return Emulate<kIn, kOut>(call.At(arena.base()));
                            }),
              "");
  }
}

template <Type kIn>
void ExpectEveryOutput() {
  ExpectTurned<kIn, Type::kF32>();
  ExpectTurned<kIn, Type::kBF16>();
  ExpectTurned<kIn, Type::kF16>();
}

TEST(RopeKernelTest, TurnsHeadsWhereverTheyGo) {
  ExpectEveryOutput<Type::kF32>();
  ExpectEveryOutput<Type::kBF16>();
  ExpectEveryOutput<Type::kF16>();
}

/// Two rows of one head; a table without positions.
struct SmallTurn {
  SmallTurn() {
    args.qk = args.out = Contiguous(x.data(), DataType::kF32, {8, 1, 2, 1});
    args.positions = Contiguous(positions.data(), DataType::kI32, {2, 1, 1, 1});
    args.slots = Contiguous(slots.data(), DataType::kI32, {2, 1, 1, 1});
    args.params = {.mode = RopeMode::kHalfSplit, .dims = 8};
    table.emplace(rope::Table::Make(args.params, nullptr, 0).value());
    args.table = &*table;
  }
  std::vector<float> x = std::vector<float>(16, 1.0f), cache = std::vector<float>(64, 0.0f);
  std::vector<std::int32_t> positions = {3, 1000000}, slots = {0, 0};
  std::optional<rope::Table> table;
  rope::Args args;
};

TEST(RopeKernelTest, APositionFarBeyondAnyTableIsRight) {
  SmallTurn small;
  ASSERT_TRUE((Emulate<Type::kF32, Type::kF32>(small.args)));
  for (std::size_t i = 0; i < 4; ++i) {
    const double angle = 1e6 * small.table->frequencies()[i];
    EXPECT_NEAR(small.x[8 + i], std::cos(angle) - std::sin(angle), 4e-7) << i;
    EXPECT_NEAR(small.x[12 + i], std::sin(angle) + std::cos(angle), 4e-7) << i;
  }
}

TEST(RopeKernelTest, ARowWithoutAPlaceInTheCacheIsLeftOut) {
  SmallTurn small;
  small.args.out = {};
  small.args.cache = Contiguous(small.cache.data(), DataType::kF32, {8, 1, 4, 2});
  ASSERT_TRUE((Emulate<Type::kF32, Type::kF32>(small.args)));
  for (std::size_t i = 0; i < small.cache.size(); ++i) {
    EXPECT_EQ(small.cache[i] != 0, i / 8 == 3) << "only position 3 of slot 0, at " << i;
  }
  EXPECT_EQ(small.x, std::vector<float>(16, 1.0f));
}

TEST(RopeLaunchTest, ReadsAndWritesWideWhereAddressesAllow) {
  const KernelSpec spec = SpecOf(DataType::kF32, DataType::kF32);
  const auto wide = [&](auto change) {
    SmallTurn small;
    change(small);
    const cuda::LaunchResult launch = RopeLaunch(spec, small.args);
    EXPECT_TRUE(launch) << launch.error().ToString();
    return launch ? launch->params.As<cuda::RopeHeadsParams>()->wide : -1;
  };
  EXPECT_EQ(wide([](SmallTurn&) {}), 1);
  EXPECT_EQ(wide([](SmallTurn& s) { s.args.qk.stride[2] = 10; }), 0);
  EXPECT_EQ(wide([](SmallTurn& s) { s.args.out.data = s.args.out.as<float>() + 1; }), 0);
  EXPECT_EQ(wide([](SmallTurn& s) { s.args.qk.shape[0] = s.args.out.shape[0] = 10; }), 0);
  EXPECT_EQ(wide([](SmallTurn& s) {
              s.args.cache = Contiguous(s.cache.data() + 1, DataType::kF32, {8, 1, 4, 1});
            }),
            0);
}

TEST(RopeLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  KernelSpec spec = SpecOf(DataType::kF32, DataType::kF32);
  {
    SmallTurn small;
    const cuda::LaunchResult launch = RopeLaunch(spec, small.args);
    ASSERT_TRUE(launch) << launch.error().ToString();
    EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{2, 1, 1}));
    EXPECT_EQ(launch->block[0], 32u * spec.warps);
  }
  const auto refused = [&](auto change, const char* words) {
    SmallTurn small;
    change(small.args);
    const cuda::LaunchResult no = RopeLaunch(spec, small.args);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  using rope::Args;
  refused([](Args& a) { a.qk.dtype = DataType::kBF16; }, "qk bf16, needs f32");
  refused([](Args& a) { a.out.dtype = DataType::kF16; }, "out f16, needs f32");
  refused([](Args& a) { a.out.shape[1] = 2; }, "out [8, 2, 2, 1], needs [8, 1, 2, 1]");
  refused([](Args& a) { a.qk.stride[0] = 2; }, "qk: elements apart");
  refused([](Args& a) { a.table = nullptr; }, "no table of rotations");
  refused([](Args& a) { a.params.base = 5; }, "a table of other parameters");
  refused([](Args& a) { a.params.dims = 10; }, "dims = 10");
  refused([](Args& a) { a.qk.shape[0] = a.out.shape[0] = 7; }, "an even head dimension");
  refused([](Args& a) { a.positions.shape[0] = 1; }, "positions of 1 elements");
  spec.family = "rope_kv";
  refused([](Args&) {}, "a kernel of rope_kv");
}

TEST(RopeHeadsFamilyTest, EverySpecPassesItsCheckAndNoOtherFieldMayBeSet) {
  const KernelFamily family = RopeFamily();
  const std::vector<KernelSpec> all = family.catalog({90, 'a'});
  EXPECT_EQ(all.size(), 9u);
  for (const KernelSpec& spec : all) {
    EXPECT_FALSE(family.check(spec).has_value()) << SpecName(spec);
    EXPECT_EQ(std::count(all.begin(), all.end(), spec), 1);
  }
  EXPECT_TRUE(family.catalog({75, 0}).empty());
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = all.front();
    change(spec);
    const auto no = family.check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_NE(no->ToString().find(word), std::string::npos) << no->ToString();
  };
  refused([](KernelSpec& s) { s.type_a = DataType::kQ8_0; }, "type_a");
  refused([](KernelSpec& s) { s.type_c = DataType::kF32; }, "type_c = f32");
  refused([](KernelSpec& s) { s.params[0] = 64; }, "does not use");
}

}  // namespace
}  // namespace tilewright
