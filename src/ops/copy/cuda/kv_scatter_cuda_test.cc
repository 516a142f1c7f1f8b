#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/copy/cuda/families.h"
#include "ops/copy/cuda/kv_scatter_cases.h"
#include "ops/copy/cuda/kv_scatter_kernel.cuh"
#include "ops/copy/cuda/kv_scatter_launch.h"

// The source of the kernels, run on the CPU as KvScatterLaunch launches them, against the float64
// oracle of the room.

namespace tilewright {
namespace {

using tw::Type;

constexpr int kWarps = 1;

KernelSpec SpecOf(DataType x, DataType cache) {
  KernelSpec spec = KvScatterFamily().catalog({90, 'a'}).front();
  spec.type_a = x;
  spec.type_c = cache;
  spec.warps = kWarps;
  EXPECT_EQ(KvScatterFamily().check(spec), std::nullopt) << SpecName(spec);
  return spec;
}

template <Type kX, Type kCache>
Status Emulate(const kv_scatter::Args& args) {
  const cuda::LaunchResult launch =
      KvScatterLaunch(SpecOf(static_cast<DataType>(kX), static_cast<DataType>(kCache)), args);
  if (!launch) return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
  const bool ran = tw::emulation::RunLaunch<tw::KvScatterParams>(
      *launch, kWarps * 32, [](const tw::KvScatterParams& p) {
        tw::KvScatter<kX, kCache, kWarps>{p, static_cast<int>(blockIdx.x)}.Run();
      });
  if (!ran) return Fail(ErrorCode::kInternal, "a launch that a GPU refuses, or a hang");
  return {};
}

template <Type kX, Type kCache>
void ExpectScattered() {
  for (const auto& one :
       kv_scatter::CudaCases(static_cast<DataType>(kX), static_cast<DataType>(kCache))) {
    EXPECT_EQ(test::RunCase(one, &kv_scatter::Reference,
                            [](const auto& call, test::Arena& arena) {
                              return Emulate<kX, kCache>(call.At(arena.base()));
                            }),
              "");
  }
}

template <Type kX>
void ExpectEveryCache() {
  ExpectScattered<kX, Type::kF32>();
  ExpectScattered<kX, Type::kBF16>();
  ExpectScattered<kX, Type::kF16>();
}

TEST(KvScatterKernelTest, PutsEveryRowInItsPlaceAndLeavesPaddingOut) {
  ExpectEveryCache<Type::kF32>();
  ExpectEveryCache<Type::kBF16>();
  ExpectEveryCache<Type::kF16>();
}

/// Rows of eight elements, two pages of two positions for each of two sequences.
struct SmallScatter {
  SmallScatter() {
    args.x = Contiguous(x.data(), DataType::kF32, {8, 1, 6, 1});
    args.cache = Contiguous(cache.data(), DataType::kF32, {8, 1, 2, 4});
    args.positions = Contiguous(positions.data(), DataType::kI32, {6, 1, 1, 1});
    args.slots = Contiguous(slots.data(), DataType::kI32, {6, 1, 1, 1});
    args.pages = Contiguous(pages.data(), DataType::kI32, {2, 2, 1, 1});
  }
  std::vector<float> x = std::vector<float>(48, 1.0f), cache = std::vector<float>(64, 0.0f);
  std::vector<std::int32_t> positions = {4, -3, 0, 0, 2, 1}, slots = {0, 0, 2, -1, 1, 0};
  std::vector<std::int32_t> pages = {3, 0, 1, 4};  // the second page of slot 1 does not exist
  kv_scatter::Args args;
};

TEST(KvScatterKernelTest, ARowWithoutAPlaceIsLeftOut) {
  SmallScatter small;
  ASSERT_TRUE((Emulate<Type::kF32, Type::kF32>(small.args)));
  for (std::size_t i = 0; i < small.cache.size(); ++i) {
    EXPECT_EQ(small.cache[i], i / 8 == 7 ? 1.0f : 0.0f)
        << "only position 1 of slot 0, in page 3, at " << i;
  }
}

TEST(KvScatterLaunchTest, ReadsAndWritesWideWhereAddressesAllow) {
  const KernelSpec spec = SpecOf(DataType::kF32, DataType::kF32);
  const auto wide = [&](auto change) {
    SmallScatter small;
    change(small.args);
    const cuda::LaunchResult launch = KvScatterLaunch(spec, small.args);
    EXPECT_TRUE(launch) << launch.error().ToString();
    return launch ? launch->params.As<cuda::KvScatterParams>()->wide : -1;
  };
  using kv_scatter::Args;
  EXPECT_EQ(wide([](Args&) {}), 1);
  EXPECT_EQ(wide([](Args& a) { a.x.stride[2] = 9; }), 0);
  EXPECT_EQ(wide([](Args& a) { a.x.data = a.x.as<float>() + 1; }), 0);
  EXPECT_EQ(wide([](Args& a) { a.cache.stride[3] = 17; }), 0);
  EXPECT_EQ(wide([](Args& a) { a.cache.data = a.cache.as<float>() + 2; }), 0);
  EXPECT_EQ(wide([](Args& a) { a.x.shape[0] = a.cache.shape[0] = 7; }), 0);
}

TEST(KvScatterLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  const KernelSpec spec = SpecOf(DataType::kF32, DataType::kF32);
  {
    SmallScatter small;
    const cuda::LaunchResult launch = KvScatterLaunch(spec, small.args);
    ASSERT_TRUE(launch) << launch.error().ToString();
    EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{6, 1, 1}));
  }
  const auto refused = [&](auto change, const char* words) {
    SmallScatter small;
    change(small.args);
    const cuda::LaunchResult no = KvScatterLaunch(spec, small.args);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  refused([](kv_scatter::Args& a) { a.x.dtype = DataType::kBF16; }, "x bf16, needs f32");
  refused([](kv_scatter::Args& a) { a.cache.dtype = DataType::kF16; }, "cache f16, needs f32");
  refused([](kv_scatter::Args& a) { a.cache.shape[1] = 2; }, "cache [8, 2, 2, 4]");
  refused([](kv_scatter::Args& a) { a.cache.stride[0] = 2; }, "cache: elements 2 apart");
  refused([](kv_scatter::Args& a) { a.x.stride[0] = 2; }, "x: elements apart");
  refused([](kv_scatter::Args& a) { a.slots.shape[0] = 5; }, "slots of 5 elements");
  refused([](kv_scatter::Args& a) { a.positions.data = nullptr; }, "positions is null");
  refused([](kv_scatter::Args& a) { a.pages.dtype = DataType::kF32; }, "pages f32, needs i32");
  refused([](kv_scatter::Args& a) { a.cache.shape[3] = 0; }, "a cache of");
  refused([](kv_scatter::Args& a) { a.x.shape[2] = 0; }, "0 rows of 1 heads of 8");
}

}  // namespace
}  // namespace tilewright
