#include "device/cuda/kernels/cluster_emulation.h"
#include "device/cuda/kernels/hopper_emulation.h"
#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/tensor_map_emulation.h"
// After it: the kernel uses its built-ins.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_hopper_kernel.cuh"
#include "ops/gemm/cuda/gemm_hopper_shares.h"
#include "ops/gemm/cuda/gemm_launch.h"
#include "ops/gemm/cuda/kernel_test_util.h"

// The source of the kernel, run on the CPU as GemmHopperLaunch launches it: tiles, ring, barriers,
// descriptors and stores. The
// emulated copy engine and wgmma are written from their documentation, not from a GPU.

namespace tilewright {
namespace {

using tw::Type;

template <bool kRowA, bool kRowB, int kM, int kN, int kWarpCount, int kStageCount,
          Type kIn = Type::kBF16, Type kAddend = Type::kNone, Type kOut = Type::kBF16,
          int kSplitCount = 1, int kBeside = 1, int kHow = cuda::kGemmHopperInTurn, int kBelow = 1>
struct Spec {
  static constexpr Type kTypeA = kIn;
  static constexpr Type kTypeC = kAddend;
  static constexpr Type kTypeD = kOut;
  static constexpr bool kRowMajorA = kRowA;
  static constexpr bool kRowMajorB = kRowB;
  static constexpr int kTileM = kM;
  static constexpr int kTileN = kN;
  static constexpr int kWarps = kWarpCount;
  static constexpr int kStages = kStageCount;
  static constexpr int kCluster = kBelow;
  static constexpr int kClusterN = kBeside;
  static constexpr int kSplits = kSplitCount;
  static constexpr int kCtasPerSm = 1;
  static constexpr int kBand = 2;
  static constexpr int kWalk = kHow;
};

template <class S>
KernelSpec HopperSpecOf() {
  KernelSpec spec = SpecOf<S>("gemm_hopper", {90, 'a'});
  spec.tile_k = 64;
  spec.split_k = S::kSplits > 1 ? S::kSplits : 0;
  spec.cluster_m = S::kCluster > 1 ? S::kCluster : 0;
  spec.cluster_n = S::kClusterN > 1 ? S::kClusterN : 0;
  spec.params = {S::kBand, 1, S::kWalk, 0};
  return spec;
}

/// The memory that a launch needs beside its operands, in guards.
struct TestWorkspace {
  explicit TestWorkspace(const WorkspaceSize& size)
      : barriers_size(size.barriers), partials(size.partials), barriers(size.barriers) {
    std::memset(barriers.data(), 0, size.barriers);
    view.partials = partials.data();
    view.partials_size = size.partials;
    view.barriers = barriers.data();
    view.barriers_size = size.barriers;
  }
  /// "" where nothing beside it was written, and counters were left at zero.
  std::string Damage() {
    const auto* counters = static_cast<const std::byte*>(barriers.data());
    const bool zero = std::all_of(counters, counters + barriers_size,
                                  [](std::byte b) { return b == std::byte{0}; });
    return partials.Damage() + barriers.Damage() + (zero ? "" : "counters not left at zero");
  }

  std::size_t barriers_size;
  test::GuardedBytes partials, barriers;
  Workspace view;
};

/// On a device with room for `ctas` CTAs, each of which takes every ctas-th output tile; `parts`: how many
/// CTAs divide tiles among themselves.
template <class S>
void ExpectProduct(const TestShape& shape, int ctas, int parts = 0) {
  TestProduct<S> product(shape);
  const KernelSpec spec = HopperSpecOf<S>();
  ASSERT_EQ(GemmHopperFamily().check(spec), std::nullopt) << SpecName(spec);
  DeviceSpec device;
  device.sm_count = ctas;
  const GemmShape extents{.m = shape.m, .n = shape.n, .k = shape.k};
  if (parts > 0) {
    ASSERT_EQ(GemmHopperSharesOf(spec, extents, device).count, parts);
  }
  TestWorkspace workspace(GemmHopperWorkspace(spec, extents, device));
  cuda::LaunchResult launch = GemmHopperLaunch(spec, product.Args(), device, workspace.view);
  ASSERT_TRUE(launch) << launch.error().ToString();
  ASSERT_TRUE(cuda::EncodeMaps(*launch, &tw::emulation::EncodeMap));
  tw::emulation::barriers.clear();
  tw::emulation::store_groups.clear();
  EXPECT_EQ(launch->block[0], 32u * S::kWarps);
  // Warps finish at different times: what RunLaunch returns does not matter here.
  tw::emulation::RunLaunch<tw::GemmHopperParams>(*launch, 32 * S::kWarps,
                                                 [](const tw::GemmHopperParams& params) {
                                                   tw::GemmHopper<S>::Run(params,
                                                                          tw::emulation::OwnSmem());
                                                 },
                                                 {S::kCluster, S::kClusterN * S::kSplits, 1});
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access, a surplus arrival or a hang";
  EXPECT_EQ(workspace.Damage(), "");
  product.Expect();
}

template <class S>
void ExpectProducts() {
  ExpectProduct<S>({1, 1, 1}, 1);
  ExpectProduct<S>({S::kTileM, S::kTileN, 64 * S::kStages}, 1);
  // One CTA takes all tiles, so that the ring goes on from one to the next.
  ExpectProduct<S>({S::kTileM + 3, S::kTileN + 9, 64 * S::kStages + 40}, 1);
  ExpectProduct<S>({S::kTileM - 5, 2 * S::kTileN - 3, 72, 8}, 2);
}

constexpr bool kT = true;   // row-major
constexpr bool kN = false;  // column-major

TEST(GemmHopperKernel, MultipliesInEveryLayout) {
  ExpectProducts<Spec<kT, kN, 64, 64, 8, 3>>();
  ExpectProducts<Spec<kN, kT, 64, 128, 8, 2>>();
  ExpectProducts<Spec<kN, kN, 64, 128, 8, 2>>();
  ExpectProducts<Spec<kT, kT, 64, 64, 8, 2>>();
}

TEST(GemmHopperKernel, SharesATileBetweenTwoWarpgroups) {
  ExpectProducts<Spec<kT, kN, 128, 64, 12, 3>>();
  ExpectProducts<Spec<kN, kT, 128, 64, 12, 2>>();
}

TEST(GemmHopperKernel, GivesAWarpgroupTwoStripsOfRows) {
  ExpectProducts<Spec<kT, kN, 128, 64, 8, 2>>();
  ExpectProducts<Spec<kN, kN, 256, 64, 12, 2>>();
}

TEST(GemmHopperKernel, TakesAndGivesOtherTypes) {
  ExpectProducts<Spec<kT, kN, 64, 64, 8, 2, Type::kF16, Type::kNone, Type::kF16>>();
  ExpectProducts<Spec<kT, kN, 64, 32, 8, 2, Type::kBF16, Type::kNone, Type::kF32>>();
  using Adds = Spec<kT, kN, 64, 64, 8, 2, Type::kBF16, Type::kBF16, Type::kBF16>;
  ExpectProducts<Adds>();
  ExpectProduct<Adds>({.m = 70, .n = 72, .k = 64, .in_place = true}, 1);
  ExpectProducts<Spec<kT, kN, 64, 32, 8, 2, Type::kF16, Type::kF32, Type::kF32>>();
}

// D at odd elements, which the copy engine cannot address; A and B lie as it needs them.
TEST(GemmHopperKernel, StoresUnalignedResultsItself) {
  for (const TestShape& shape : {TestShape{.m = 70, .n = 136, .k = 64, .odd_d = true},
                                 TestShape{.m = 129, .n = 67, .k = 200, .odd_d = true}}) {
    ExpectProduct<Spec<kT, kN, 64, 64, 8, 2>>(shape, 1);
    ExpectProduct<Spec<kT, kN, 64, 32, 8, 2, Type::kBF16, Type::kNone, Type::kF32>>(shape, 1);
    ExpectProduct<Spec<kT, kN, 64, 64, 8, 2, Type::kBF16, Type::kBF16, Type::kBF16>>(shape, 1);
  }
}

// TMA writes chunks of 16 bytes, whole: behind the last column of lines that are aligned for it
// there is room that is not D's.
TEST(GemmHopperKernel, WritesNothingBehindAnOddNumberOfColumns) {
  for (const int n : {1, 4, 67, 68, 131}) {
    const TestShape shape{.m = 70, .n = n, .k = 64, .pad = 8};
    ExpectProduct<Spec<kT, kN, 64, 64, 8, 2>>(shape, 1);
    ExpectProduct<Spec<kT, kN, 64, 32, 8, 2, Type::kBF16, Type::kNone, Type::kF32>>(shape, 1);
    ExpectProduct<Spec<kT, kN, 64, 64, 8, 2, Type::kBF16, Type::kBF16, Type::kBF16>>(shape, 1);
  }
}

// One, two and more pieces of D a consumer and tile: the two places for them are taken in turn over
// all tiles.
TEST(GemmHopperKernel, StagesEveryNumberOfPieces) {
  // The last of them a quarter, half and three quarters as wide as the others.
  ExpectProducts<Spec<kT, kN, 64, 80, 8, 2>>();
  ExpectProducts<Spec<kT, kN, 64, 96, 8, 2>>();
  ExpectProducts<Spec<kT, kN, 64, 112, 8, 2>>();
  ExpectProducts<Spec<kT, kN, 64, 48, 8, 2, Type::kBF16, Type::kNone, Type::kF32>>();
  ExpectProducts<Spec<kT, kN, 128, 80, 12, 2, Type::kBF16, Type::kBF16, Type::kBF16>>();
  ExpectProducts<Spec<kT, kN, 128, 176, 12, 2>>();
  ExpectProducts<Spec<kT, kN, 128, 160, 12, 2>>();
  // Several tiles of a CTA: which of the two places is free does not depend on who stores a piece.
  ExpectProduct<Spec<kT, kN, 64, 160, 8, 2>>({130, 640, 64}, 1);
  ExpectProduct<Spec<kT, kN, 64, 32, 8, 2, Type::kBF16, Type::kBF16, Type::kBF16>>(
      {.m = 70, .n = 200, .k = 64, .in_place = true}, 1);
  ExpectProduct<Spec<kT, kN, 64, 96, 8, 2>>({.m = 70, .n = 201, .k = 64, .odd_d = true}, 1);
  ExpectProduct<Spec<kT, kN, 64, 64, 8, 2>>({200, 200, 64}, 1);
  ExpectProduct<Spec<kT, kN, 64, 192, 8, 2>>({200, 600, 64}, 1);
  ExpectProduct<Spec<kT, kN, 128, 256, 12, 2>>({300, 600, 64}, 1);
}

/// Tiles that `kSplits` CTAs share.
template <int kM, int kCols, int kWarpCount, int kStageCount, int kSplits,
          Type kAddend = Type::kNone, Type kOut = Type::kBF16>
using Shared =
    Spec<kT, kN, kM, kCols, kWarpCount, kStageCount, Type::kBF16, kAddend, kOut, kSplits>;

/// Parts of k that are equal, unequal, and of some CTAs none; one tile and several.
template <class S>
void ExpectSharedProducts() {
  ExpectProducts<S>();
  for (const int k :
       {8, 64, 64 * S::kSplits, 64 * S::kSplits + 8, 64 * S::kSplits * S::kStages * 2}) {
    ExpectProduct<S>({S::kTileM, S::kTileN, k}, 1);
    ExpectProduct<S>({17, 2 * S::kTileN + 5, k}, 1);
  }
}

TEST(GemmHopperKernel, SharesATileBetweenCtas) {
  ExpectSharedProducts<Shared<64, 64, 8, 2, 2>>();
  ExpectSharedProducts<Shared<64, 128, 8, 2, 2>>();
  ExpectSharedProducts<Shared<64, 64, 8, 2, 4>>();
  ExpectSharedProducts<Shared<64, 128, 8, 2, 4>>();
}

TEST(GemmHopperKernel, SharesATileOfSeveralStripsBetweenCtas) {
  ExpectSharedProducts<Shared<128, 64, 12, 2, 2>>();
  ExpectSharedProducts<Shared<128, 64, 8, 2, 2>>();
}

TEST(GemmHopperKernel, SharesTilesOfOtherTypesAndLayouts) {
  ExpectProducts<Shared<64, 64, 8, 2, 2, Type::kNone, Type::kF32>>();
  ExpectProducts<Shared<64, 32, 8, 2, 4, Type::kNone, Type::kF32>>();
  ExpectProducts<Shared<64, 32, 8, 2, 4>>();
  using Adds = Shared<64, 64, 8, 2, 2, Type::kBF16>;
  ExpectProducts<Adds>();
  ExpectProduct<Adds>({.m = 70, .n = 72, .k = 264, .in_place = true}, 1);
  ExpectProduct<Adds>({.m = 70, .n = 67, .k = 264, .odd_d = true}, 1);
}

TEST(GemmHopperKernel, SharesTilesOfEveryLayout) {
  ExpectProducts<Spec<kN, kT, 64, 64, 8, 2, Type::kF16, Type::kNone, Type::kF16, 2>>();
  ExpectProducts<Spec<kN, kN, 64, 64, 8, 2, Type::kBF16, Type::kNone, Type::kBF16, 2>>();
  ExpectProducts<Spec<kT, kT, 64, 64, 8, 2, Type::kBF16, Type::kNone, Type::kBF16, 2>>();
}

/// Tiles of a cluster beside each other, kSplits CTAs each.
template <int kCtas, int kSplits, Type kOut = Type::kBF16>
using Beside = Spec<kT, kN, 64, 64, 8, 2, Type::kBF16, Type::kNone, kOut, kSplits, kCtas>;

TEST(GemmHopperKernel, FetchesPartsOfACommonTile) {
  ExpectProducts<Beside<2, 1>>();
  ExpectProducts<Beside<4, 1>>();
  ExpectSharedProducts<Beside<2, 2>>();
  ExpectProducts<Spec<kT, kT, 64, 64, 8, 2, Type::kBF16, Type::kNone, Type::kBF16, 2, 2>>();
  ExpectProducts<Spec<kT, kN, 128, 64, 12, 2, Type::kBF16, Type::kNone, Type::kBF16, 1, 2>>();
  for (const int m : {1, 8, 9, 17, 63}) ExpectProduct<Beside<2, 1>>({m, 200, 328}, 2);
}

// Rows that no tile has are not fetched: a few of them, and one more than eight.
TEST(GemmHopperKernel, FetchesTheRowsThatThereAre) {
  for (const int m : {1, 8, 9, 16, 63}) {
    ExpectProduct<Spec<kT, kN, 64, 64, 8, 2>>({m, 70, 200}, 1);
    ExpectProduct<Spec<kT, kN, 128, 64, 12, 2>>({m, 70, 200}, 1);
  }
}

/// Tiles that all CTAs divide along k where they would be left over.
template <int kM, int kCols, int kWarpCount, int kStageCount, Type kAddend = Type::kNone,
          Type kOut = Type::kBF16, int kBeside = 1>
using Divided = Spec<kT, kN, kM, kCols, kWarpCount, kStageCount, Type::kBF16, kAddend, kOut, 1,
                     kBeside, cuda::kGemmHopperByShares>;

/// With CTAs that come first to last and last to first: the last of a tile has the begin of k, the end of
/// it, or what lies between.
template <class S>
void ExpectDividedProduct(const TestShape& shape, int ctas, int parts) {
  ExpectProduct<S>(shape, ctas, parts);
  tw::emulation::backwards = true;
  ExpectProduct<S>(shape, ctas, parts);
  tw::emulation::backwards = false;
}

TEST(GemmHopperKernel, DividesTilesAlongK) {
  using Low = Divided<64, 64, 8, 3>;
  ExpectDividedProduct<Low>({17, 64, 64 * 33}, 4, 4);   // one tile, four parts
  ExpectDividedProduct<Low>({64, 192, 64 * 20}, 5, 5);  // parts that begin within tiles
  ExpectDividedProduct<Low>({33, 150, 64 * 17 + 8}, 4, 4);
  // Whole tiles behind the divided ones.
  ExpectDividedProduct<Low>({65, 256 + 64, 64 * 16}, 8, 4);
  ExpectDividedProduct<Low>({100, 200, 64 * 12 + 40}, 3, 3);
}

TEST(GemmHopperKernel, DividesTilesOfSeveralStripsAndTypes) {
  ExpectDividedProduct<Divided<128, 64, 12, 2>>({70, 130, 64 * 17}, 4, 4);
  ExpectDividedProduct<Divided<128, 128, 8, 2>>({128, 128, 64 * 16}, 2, 2);
  ExpectDividedProduct<Divided<256, 64, 12, 2>>({200, 64, 64 * 24}, 3, 3);
  ExpectDividedProduct<Divided<64, 32, 8, 2, Type::kNone, Type::kF32>>({64, 96, 64 * 16}, 4, 4);
  using Adds = Divided<64, 64, 8, 2, Type::kBF16>;
  ExpectDividedProduct<Adds>({.m = 64, .n = 72, .k = 64 * 16, .in_place = true}, 3, 3);
  ExpectDividedProduct<Adds>({.m = 64, .n = 67, .k = 64 * 16, .odd_d = true}, 3, 3);
}

TEST(GemmHopperKernel, DividesTilesOfClusters) {
  using Two = Divided<64, 64, 8, 2, Type::kNone, Type::kBF16, 2>;
  ExpectDividedProduct<Two>({64, 128, 64 * 24}, 6, 3);
  ExpectDividedProduct<Two>({40, 300, 64 * 16}, 8, 4);
}

/// Clusters of kDown by kCtas tiles.
template <int kDown, int kCtas, int kM = 64, int kCols = 64, int kWarpCount = 8,
          int kHow = cuda::kGemmHopperInTurn>
using Grid = Spec<kT, kN, kM, kCols, kWarpCount, 2, Type::kBF16, Type::kNone, Type::kBF16, 1, kCtas,
                  kHow, kDown>;

TEST(GemmHopperKernel, FetchesPartsOfCommonTilesInBothDirections) {
  ExpectProducts<Grid<2, 1>>();
  ExpectProducts<Grid<4, 1>>();
  ExpectProducts<Grid<2, 2>>();
  ExpectProducts<Grid<4, 2>>();
  ExpectProducts<Grid<2, 4>>();
  ExpectProducts<Grid<2, 2, 64, 96>>();
  ExpectProducts<Grid<2, 2, 128, 64, 12>>();
  // Parts of B for all, for two of four, and for one.
  ExpectProducts<Grid<4, 1, 64, 80>>();
  ExpectProducts<Grid<2, 2, 64, 80>>();
  ExpectProducts<Grid<4, 2, 64, 48>>();
  ExpectProducts<Grid<2, 2, 64, 64, 12, cuda::kGemmHopperPingPong>>();
  for (const int m : {1, 8, 65, 130, 257}) {
    for (const int n : {8, 70, 200}) {
      ExpectProduct<Grid<2, 2>>({m, n, 328}, 4);
      ExpectProduct<Grid<4, 2>>({m, n, 72}, 8);
    }
  }
  ExpectProduct<Grid<2, 2>>({300, 400, 64 * 5}, 4);  // several tiles of a CTA
  ExpectDividedProduct<Grid<2, 2, 64, 64, 8, cuda::kGemmHopperByShares>>({128, 128, 64 * 24}, 12,
                                                                         3);
}

// Tiles that come out even, or whose k is short, are not: a launch without workspace.
TEST(GemmHopperKernel, DividesNoTileForNothing) {
  using Low = Divided<64, 64, 8, 2>;
  ExpectProducts<Low>();
  DeviceSpec device;
  device.sm_count = 4;
  const auto workspace = [&](int n, int k) {
    return GemmHopperWorkspace(HopperSpecOf<Low>(), {.m = 64, .n = n, .k = k}, device);
  };
  EXPECT_EQ(workspace(256, 4096), WorkspaceSize{});
  EXPECT_EQ(workspace(64, 512), WorkspaceSize{});
  EXPECT_NE(workspace(64, 4096), WorkspaceSize{});
}

TEST(GemmHopperKernel, GivesWarpgroupsTilesInTurn) {
  using InTurn = Spec<kT, kN, 64, 64, 12, 3, Type::kBF16, Type::kNone, Type::kBF16, 1, 1,
                      cuda::kGemmHopperPingPong>;
  using Strips = Spec<kT, kN, 128, 64, 12, 2, Type::kBF16, Type::kBF16, Type::kBF16, 1, 1,
                      cuda::kGemmHopperPingPong>;
  ExpectProducts<InTurn>();
  ExpectProducts<Strips>();
  for (const int n : {64, 128, 192, 250}) {
    ExpectProduct<InTurn>({60, n, 72}, 1);
    ExpectProduct<InTurn>({64, n, 64 * 7}, 1);
    ExpectProduct<InTurn>({150, n, 64 * 2}, 2);
  }
  ExpectProduct<Strips>({.m = 130, .n = 200, .k = 264, .in_place = true}, 2);
  ExpectProduct<Spec<kT, kN, 64, 64, 12, 2, Type::kBF16, Type::kNone, Type::kBF16, 1, 2,
                     cuda::kGemmHopperPingPong>>({70, 500, 328}, 4);
}

}  // namespace
}  // namespace tilewright
