#include "device/cuda/kernels/hopper_emulation.h"
#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After it: the kernels use its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "artifact/spec_checks.h"
#include "ops/gemm/cuda/gemv/gemv_int8_kernel.cuh"
#include "ops/gemm/cuda/gemv/gemv_q_kernel.cuh"
#include "ops/gemm/cuda/gemv/gemv_stream_kernel.cuh"
#include "ops/gemm/cuda/grouped/families.h"
#include "ops/gemm/cuda/grouped/gemm_q_grouped.cuh"
#include "ops/gemm/cuda/grouped/gemm_simt_grouped.cuh"
#include "ops/gemm/cuda/grouped/grouped_case.h"
#include "ops/gemm/cuda/grouped/grouped_gemv.cuh"
#include "ops/gemm/cuda/grouped/grouped_launch.h"

// The source of the kernels, run on the CPU as GroupedLaunch launches them, against float64.

namespace tilewright {
namespace {

using test::GroupedCase;
using test::GroupedShape;
using tw::Type;
using tw::Epilogue::kNone;
using tw::Epilogue::kSwiGlu;

constexpr CudaArch kHopper{90, 'a'};
constexpr int kSmCount = 6;

KernelSpec SpecOf(const char* family, Type x, Type w, tw::Epilogue epilogue, int tile_m, int tile_n,
                  int warps, int stages) {
  KernelSpec spec;
  spec.family = family;
  spec.arch = kHopper;
  spec.type_a = spec.type_d = static_cast<DataType>(x);
  spec.type_b = static_cast<DataType>(w);
  spec.order_a = Order::kRowMajor;
  spec.order_b = Order::kColMajor;
  spec.epilogue = static_cast<SpecEpilogue>(epilogue);
  spec.tile_m = static_cast<std::uint16_t>(tile_m);
  spec.tile_n = static_cast<std::uint16_t>(tile_n);
  spec.warps = static_cast<std::uint16_t>(warps);
  spec.stages = static_cast<std::uint8_t>(stages);
  return spec;
}

std::optional<Rejection> CheckSpec(const KernelSpec& spec) {
  for (const KernelFamily& family : GroupedFamilies()) {
    if (family.name == spec.family) return family.check(spec);
  }
  return Reject(Reason::kDevice, "an unknown family", "a grouped one");
}

/// Runs kernel(params) as launched, for every spread of rows, and judges what it made.
template <class Params, class Kernel>
void ExpectRight(const KernelSpec& spec, std::int32_t n, std::int32_t k, Kernel kernel) {
  ASSERT_EQ(CheckSpec(spec), std::nullopt) << SpecName(spec);
  for (const std::vector<std::int32_t>& offsets : test::GroupedSpreads()) {
    for (const bool indexed : {true, false}) {
      if (!indexed && offsets.size() < 6) continue;  // of one spread both
      GroupedCase one(spec.type_a, spec.type_b,
                      {.n = n,
                       .k = k,
                       .offsets = offsets,
                       .indexed = indexed,
                       .gated = spec.epilogue == SpecEpilogue::kSwiGlu});
      test::GuardedBytes y(one.y_bytes());
      const cuda::LaunchResult launch = GroupedLaunch(spec, one.Args(y.data()), kSmCount);
      ASSERT_TRUE(launch) << launch.error().ToString();
      tw::emulation::barriers.clear();
      tw::emulation::readable_begin = static_cast<const tw::u8*>(one.w().data());
      tw::emulation::readable_end = tw::emulation::readable_begin + one.w().size();
      tw::emulation::other_readable_begin = static_cast<const tw::u8*>(one.x().data());
      tw::emulation::other_readable_end = tw::emulation::other_readable_begin + one.x().size();
      const bool ran = tw::emulation::RunLaunch<Params>(*launch, spec.warps * 32u, kernel);
      tw::emulation::readable_begin = tw::emulation::other_readable_begin = nullptr;
      ASSERT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
      EXPECT_FALSE(tw::emulation::fault) << "an illegal access, or a read outside of W and x";
      EXPECT_EQ(y.Damage() + one.x().Damage() + one.w().Damage(), "");
      const auto* bytes = static_cast<const std::byte*>(y.data());
      EXPECT_EQ(
          one.Judge({bytes, bytes + y.size()}, spec.family == FamilyName("gemv_int8_grouped")), "")
          << one.name();
    }
  }
}

template <Type kX, Type kW, tw::Epilogue kEpilogue>
void ExpectInt8(std::int32_t n, std::int32_t k) {
  constexpr int kRows = 2, kWarps = 2, kStages = 2;
  constexpr int kSegment = kW == Type::kQ6_K ? 2048 : 1024;
  KernelSpec spec =
      SpecOf("gemv_int8_grouped", kX, kW, kEpilogue, 1, kRows * kWarps, kWarps, kStages);
  spec.tile_k = kSegment;
  spec.params = {kRows, 1, 0, 0};
  ExpectRight<tw::GroupedGemvParams>(spec, n, k, [](const tw::GroupedGemvParams& p) {
    tw::GemvParams product;
    if (!tw::ProductOfRow<kX, kX>(p, product)) return;
    tw::GemvInt8Run<kX, kW, Type::kNone, kX, kEpilogue, 1, kRows, kWarps, kSegment, kStages>(
        product, tw::emulation::smem);
  });
}

template <Type kX, Type kW, tw::Epilogue kEpilogue>
void ExpectQuantised(std::int32_t n, std::int32_t k) {
  constexpr int kTileN = 32, kWarps = 8, kSplit = 8, kStages = 2;
  KernelSpec spec = SpecOf("gemv_q_grouped", kX, kW, kEpilogue, 1, kTileN, kWarps, kStages);
  spec.params = {kSplit, 1, 0, 0};
  ExpectRight<tw::GroupedGemvParams>(spec, n, k, [](const tw::GroupedGemvParams& p) {
    tw::GemvParams product;
    if (!tw::ProductOfRow<kX, kX>(p, product)) return;
    tw::GemvQ<kX, kW, Type::kNone, kX, 1, kTileN, kWarps, kSplit, kStages, kEpilogue>(
        product, 0, tw::emulation::smem);
  });
}

template <Type kX, Type kW, tw::Epilogue kEpilogue>
void ExpectStream(std::int32_t n, std::int32_t k) {
  constexpr int kWarps = 2, kSpans = 2, kStages = 3;
  KernelSpec spec = SpecOf("gemv_stream_grouped", kX, kW, kEpilogue, 1, kWarps, kWarps, kStages);
  spec.params = {kSpans, 1, 0, 0};
  ExpectRight<tw::GroupedGemvParams>(spec, n, k, [](const tw::GroupedGemvParams& p) {
    tw::GemvParams product;
    if (!tw::ProductOfRow<kX, kX>(p, product)) return;
    tw::GemvStreamRun<kX, kW, Type::kNone, kX, kEpilogue, kWarps, kSpans, kStages>(
        product, 0, tw::emulation::smem);
  });
}

template <Type kW, tw::Epilogue kEpilogue, int kTileM, int kTileN, int kWarps, int kParts>
void ExpectTiles(std::int32_t n, std::int32_t k) {
  constexpr Type kC = kEpilogue == kSwiGlu ? Type::kNone : Type::kBF16;
  constexpr int kStages = 3;
  KernelSpec spec =
      SpecOf("gemm_q_grouped", Type::kBF16, kW, kEpilogue, kTileM, kTileN, kWarps, kStages);
  spec.type_c = static_cast<DataType>(kC);
  spec.tile_k = 256;
  spec.params = {kParts, 1, 0, 0};
  ExpectRight<tw::GroupedGemmQParams>(spec, n, k, [](const tw::GroupedGemmQParams& p) {
    tw::GemmQGrouped<kW, kC, Type::kBF16, kEpilogue, kTileM, kTileN, kWarps, kParts, kStages>(
        p, tw::emulation::smem);
  });
}

template <Type kX, Type kW, int kM, int kN, int kWarpCount, int kRowCount, int kColCount>
struct SimtSpec {
  static constexpr Type kTypeA = kX, kTypeB = kW, kTypeC = kX, kTypeD = kX;
  static constexpr int kTileM = kM, kTileN = kN, kTileK = 32, kWarps = kWarpCount;
  static constexpr int kRows = kRowCount, kCols = kColCount;
};
template <class S>
void ExpectSimt(std::int32_t n, std::int32_t k) {
  KernelSpec spec = SpecOf("gemm_simt_grouped", S::kTypeA, S::kTypeB, tw::Epilogue::kAdd, S::kTileM,
                           S::kTileN, S::kWarps, 0);
  spec.type_c = spec.type_d;
  spec.tile_k = S::kTileK;
  spec.params = {S::kRows, S::kCols, 0, 0};
  ExpectRight<tw::GroupedGemmSimtParams>(
      spec, n, k, [](const tw::GroupedGemmSimtParams& p) { tw::GemmSimtGrouped<S>(p); });
}

TEST(GroupedKernelTest, RowsAreMultipliedAsIntegersWithTheBlocksOfTheirGroup) {
  ExpectInt8<Type::kBF16, Type::kQ4_K, kNone>(41, 512);
  ExpectInt8<Type::kBF16, Type::kQ4_K, kSwiGlu>(64, 256);
  ExpectInt8<Type::kF32, Type::kQ6_K, kNone>(7, 768);
  ExpectInt8<Type::kF32, Type::kQ5_0, kSwiGlu>(32, 320);
  ExpectInt8<Type::kBF16, Type::kQ8_0, kNone>(9, 1024);
  ExpectInt8<Type::kBF16, Type::kMXFP4, kSwiGlu>(32, 576);
}

TEST(GroupedKernelTest, RowsAreMultipliedUnroundedWithTheBlocksOfTheirGroup) {
  ExpectQuantised<Type::kF32, Type::kQ4_K, kNone>(41, 512);
  ExpectQuantised<Type::kBF16, Type::kQ4_1, kSwiGlu>(64, 544);
  ExpectQuantised<Type::kF32, Type::kQ6_K, kSwiGlu>(32, 256);
  ExpectQuantised<Type::kBF16, Type::kQ5_0, kNone>(17, 320);
}

TEST(GroupedKernelTest, TilesOfTheRowsOfAGroupAreMultipliedWithItsBlocks) {
  using tw::Epilogue::kAdd;
  ExpectTiles<Type::kQ4_K, kAdd, 8, 64, 8, 4>(75, 512);
  ExpectTiles<Type::kQ6_K, kAdd, 16, 64, 8, 4>(41, 768);
  ExpectTiles<Type::kQ5_0, kSwiGlu, 8, 64, 8, 4>(96, 320);
  ExpectTiles<Type::kQ8_0, kSwiGlu, 32, 128, 8, 2>(64, 256);
  ExpectTiles<Type::kMXFP4, kAdd, 8, 64, 8, 4>(37, 576);
}

TEST(GroupedKernelTest, RowsStreamThePlainWeightsOfTheirGroup) {
  ExpectStream<Type::kBF16, Type::kBF16, kNone>(11, 520);
  ExpectStream<Type::kBF16, Type::kF16, kSwiGlu>(64, 264);
  ExpectStream<Type::kF32, Type::kF16, kNone>(5, 2056);
}

TEST(GroupedKernelTest, TilesOfTheRowsOfAGroupAreMultipliedWithItsWeightsOfAnyType) {
  ExpectSimt<SimtSpec<Type::kF32, Type::kF32, 8, 32, 4, 2, 1>>(41, 77);
  ExpectSimt<SimtSpec<Type::kBF16, Type::kF32, 8, 32, 4, 2, 1>>(33, 64);
  ExpectSimt<SimtSpec<Type::kF16, Type::kBF16, 64, 64, 8, 4, 4>>(70, 100);
}

/// Two groups of 16 columns and k 256.
struct SmallGroups {
  SmallGroups() : one(DataType::kF32, DataType::kQ4_0, {.n = 16, .k = 256, .offsets = {0, 2, 5}}) {
    y.resize(one.y_bytes(), std::byte{0xff});
    args = one.Args(y.data());
  }
  GroupedCase one;
  std::vector<std::byte> y;
  GemmArgs args;
};

KernelSpec SmallSpec() {
  KernelSpec spec = SpecOf("gemv_q_grouped", Type::kF32, Type::kQ4_0, kNone, 1, 32, 8, 2);
  spec.params = {8, 1, 0, 0};
  return spec;
}

void RunSmall(const cuda::CudaLaunch& launch) {
  EXPECT_TRUE(tw::emulation::RunLaunch<tw::GroupedGemvParams>(
      launch, 256, [](const tw::GroupedGemvParams& p) {
        tw::GemvParams product;
        if (!tw::ProductOfRow<Type::kF32, Type::kF32>(p, product)) return;
        tw::GemvQ<Type::kF32, Type::kQ4_0, Type::kNone, Type::kF32, 1, 32, 8, 8, 2, kNone>(
            product, 0, tw::emulation::smem);
      }));
}

TEST(GroupedKernelTest, OffsetsThatAreNoneLeaveRowsOutAndReadNothingElse) {
  for (std::vector<std::int32_t> offsets :
       {std::vector<std::int32_t>{0, 2, 3}, {0, -7, 1 << 30}, {5, 5, 5}, {1, 3, 5}, {9, 4, 0}}) {
    SmallGroups small;
    small.args.a_layout.offsets = small.args.d_layout.offsets = offsets.data();
    const cuda::LaunchResult launch = GroupedLaunch(SmallSpec(), small.args, kSmCount);
    ASSERT_TRUE(launch) << launch.error().ToString();
    tw::emulation::readable_begin = static_cast<const tw::u8*>(small.one.w().data());
    tw::emulation::readable_end = tw::emulation::readable_begin + small.one.w().size();
    RunSmall(*launch);
    tw::emulation::readable_begin = nullptr;
    EXPECT_FALSE(tw::emulation::fault) << "a read outside of W";
    const auto written = [&](std::size_t row) {
      return small.y[row * (small.y.size() / 5)] != std::byte{0xff};
    };
    if (offsets == std::vector<std::int32_t>{0, 2, 3}) {
      EXPECT_TRUE(written(2) && !written(3) && !written(4));
    }
    if (offsets == std::vector<std::int32_t>{1, 3, 5}) {
      EXPECT_TRUE(!written(0) && written(1) && written(4));
    }
  }
}

TEST(GroupTileTest, TilesAreThoseOfTheGroupsInTheirOrder) {
  // More groups than a warp looks at together.
  std::vector<std::int32_t> offsets = {0};
  for (int g = 0; g < 300; ++g) offsets.push_back(offsets.back() + g * 7 % 5 * (g % 3));
  const int rows = offsets.back();
  for (const int tile_m : {1, 4, 64}) {
    std::vector<std::array<int, 3>> want, got;
    for (int g = 0; g < 300; ++g) {
      for (int first = offsets[g]; first < offsets[g + 1]; first += tile_m)
        want.push_back({g, first, std::min(tile_m, offsets[g + 1] - first)});
    }
    const auto most = static_cast<int>(cuda::GroupedTiles(rows, 300, tile_m));
    ASSERT_LE(want.size(), static_cast<std::size_t>(most));
    got.resize(static_cast<std::size_t>(most));
    const tw::GemmGroups groups{offsets.data(), nullptr, 0, 300, 0};
    tw::emulation::Run({static_cast<unsigned>(most), 1, 1}, 32, [&] {
      const auto index = static_cast<int>(blockIdx.x);
      const tw::GroupTile tile = tw::FindGroupTile(groups, rows, tile_m, index);
      got[static_cast<std::size_t>(index)] = {tile.group, tile.first, tile.rows};
    });
    want.resize(got.size());
    EXPECT_EQ(got, want) << tile_m;
  }
}

TEST(GroupTileTest, NoTileLeavesTheRowsWhateverTheOffsets) {
  constexpr int kRows = 9;
  for (const std::vector<std::int32_t>& offsets :
       {std::vector<std::int32_t>{0, 40, 2}, {-8, 3, 9}, {9, 0, 9}, {0, 1 << 30, -(1 << 30)}}) {
    const tw::GemmGroups groups{offsets.data(), nullptr, 0, 2, 0};
    tw::emulation::Run({8, 1, 1}, 32, [&] {
      const tw::GroupTile tile = tw::FindGroupTile(groups, kRows, 4, static_cast<int>(blockIdx.x));
      EXPECT_TRUE(tile.group >= 0 && tile.group < 2 && tile.rows >= 0 && tile.rows <= 4);
      EXPECT_TRUE(tile.first >= 0 && tile.first + tile.rows <= kRows);
    });
  }
}

TEST(GroupedLaunchTest, RefusesGroupsThatDoNotFit) {
  {
    SmallGroups small;
    const cuda::LaunchResult launch = GroupedLaunch(SmallSpec(), small.args, kSmCount);
    ASSERT_TRUE(launch) << launch.error().ToString();
    EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{1, 5, 1}));
  }
  const auto refused = [&](auto change, const char* words) {
    SmallGroups small;
    change(small.args);
    const cuda::LaunchResult no = GroupedLaunch(SmallSpec(), small.args, kSmCount);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  refused([](GemmArgs& a) { a.b_layout.num = 3; }, "3 of B");
  refused([](GemmArgs& a) { a.b_layout.ld = 0; }, "a pointer to each matrix");
  refused([](GemmArgs& a) { a.d_layout.idxs = a.a_layout.idxs; }, "indexed rows of D");
  refused([](GemmArgs& a) { a.d_layout.offsets = nullptr; }, "offsets of A and of D");
  refused([](GemmArgs& a) { a.a_layout.offsets = a.d_layout.offsets = nullptr; },
          "offsets is null");
  refused([](GemmArgs& a) { a.beta = 1; }, "beta = 1");
  refused([](GemmArgs& a) { a.d_layout.rows = 65536; }, "m = 65536");
  refused([](GemmArgs& a) { a.a_layout.type = DataType::kBF16; }, "A bf16");
  KernelSpec dense = SmallSpec();
  dense.family = "gemv_q";
  SmallGroups small;
  EXPECT_THAT(GroupedLaunch(dense, small.args, kSmCount).error().ToString(),
              testing::HasSubstr("a kernel of gemv_q"));
}

TEST(GroupedFamilies, HaveSpecsOfTheirDenseFamilies) {
  for (const KernelFamily& family : GroupedFamilies()) {
    const std::vector<KernelSpec> specs = family.catalog(kHopper);
    EXPECT_GT(specs.size(), 4u) << family.name.view();
    for (const KernelSpec& spec : specs) {
      EXPECT_EQ(family.check(spec), std::nullopt) << SpecName(spec);
      EXPECT_EQ(spec.family, family.name);
      EXPECT_EQ(DenseFamilyOf(family.name)->check(DenseSpecOf(spec)), std::nullopt);
    }
    EXPECT_TRUE(family.catalog({75, 0}).empty());
  }
  KernelSpec spec = SmallSpec();
  spec.tile_m = 2;
  EXPECT_THAT(CheckSpec(spec)->ToString(), testing::HasSubstr("tile_m"));
  EXPECT_EQ(DenseFamilyOf("gemv_q"), nullptr);
}

}  // namespace
}  // namespace tilewright
