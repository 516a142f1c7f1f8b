#include "ops/gemm/cuda/gemm_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_hopper_shares.h"
#include "ops/gemm/cuda/gemm_mma_splits.h"
#include "tilewright/cuda/gemm_params.h"

namespace tilewright {
namespace {

using Extents = std::array<std::uint32_t, 3>;

constexpr CudaArch kHopper{90, 'a'};

KernelSpec Mma() { return GemmMmaFamily().catalog({80, 0}).at(0); }        // tn, 128 x 128
KernelSpec Hopper() { return GemmHopperFamily().catalog(kHopper).at(0); }  // tn, 128 x 256
KernelSpec HopperPair() {
  KernelSpec spec = Hopper();
  spec.cluster_m = 2;
  return spec;
}
/// 128 x 128, with two CTAs for each tile.
KernelSpec HopperShared() {
  KernelSpec spec = Hopper();
  spec.tile_n = 128;
  spec.split_k = 2;
  return spec;
}
/// The same with another epilogue, C of the type of D.
KernelSpec Adding(KernelSpec spec) {
  spec.epilogue = SpecEpilogue::kAdd;
  spec.type_c = spec.type_d;
  return spec;
}

void* At(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

/// Dense operands of `spec` at addresses that nobody reads.
GemmArgs Problem(const KernelSpec& spec, std::int32_t m, std::int32_t n, std::int32_t k) {
  const auto layout = [](DataType type, Order order, std::int32_t rows, std::int32_t cols) {
    return MatrixLayout{.type = type,
                        .order = order,
                        .rows = rows,
                        .cols = cols,
                        .ld = order == Order::kRowMajor ? cols : rows};
  };
  GemmArgs args;
  args.a = At(0x1000);
  args.b = At(0x2000);
  args.c = At(0x4000);
  args.d = At(0x3000);
  args.a_layout = layout(spec.type_a, spec.order_a, m, k);
  args.b_layout = layout(spec.type_b, spec.order_b, k, n);
  args.c_layout = layout(spec.type_c, Order::kRowMajor, m, n);
  args.d_layout = layout(spec.type_d, Order::kRowMajor, m, n);
  return args;
}

DeviceSpec Device(int sm_count) {
  DeviceSpec device;
  device.kind = DeviceKind::kCuda;
  device.sm_count = sm_count;
  device.smem_bytes = 227 * 1024;
  return device;
}

cuda::LaunchResult LaunchOf(const KernelSpec& spec, const GemmArgs& args) {
  return spec.family == FamilyName("gemm_mma") ? GemmMmaLaunch(spec, args, Device(132), {})
                                               : GemmHopperLaunch(spec, args, Device(132), {});
}

/// "" when the launcher takes the arguments, else what it says.
std::string Refusal(const KernelSpec& spec, const GemmArgs& args) {
  const cuda::LaunchResult launch = LaunchOf(spec, args);
  return launch ? "" : launch.error().ToString();
}

TEST(GemmLaunchTest, TakesAnyShapeWithMma) {
  GemmArgs odd = Problem(Mma(), 1, 3, 5);
  odd.a = At(0x1002);
  odd.a_layout.ld = 7;
  EXPECT_EQ(Refusal(Mma(), odd), "");
  EXPECT_NE(Refusal(Mma(), Problem(Mma(), 0, 3, 5)), "");
  EXPECT_NE(Refusal(Mma(), Problem(Mma(), 1, 3, 0)), "");
  EXPECT_NE(Refusal(Mma(), Problem(Mma(), 2147483647, 1, 1)), "");
  EXPECT_NE(Refusal(Mma(), Problem(Mma(), 2147480000, 2147480000, 1)), "");
}

TEST(GemmLaunchTest, RefusesLinesShorterThanTheirContents) {
  for (const KernelSpec& spec : GemmMmaFamily().catalog({80, 0})) {
    const GemmArgs args = Problem(spec, 10, 20, 30);
    EXPECT_EQ(Refusal(spec, args), "") << SpecName(spec);
    for (MatrixLayout GemmArgs::*layout :
         {&GemmArgs::a_layout, &GemmArgs::b_layout, &GemmArgs::d_layout}) {
      GemmArgs shorter = args;
      (shorter.*layout).ld -= 1;
      EXPECT_THAT(Refusal(spec, shorter), testing::HasSubstr("at least")) << SpecName(spec);
    }
  }
}

TEST(GemmLaunchTest, RefusesOperandsThatAreNotTheSpecs) {
  const KernelSpec spec = Mma();
  const auto refused = [&](auto change, const char* words) {
    GemmArgs args = Problem(spec, 10, 20, 30);
    change(args);
    EXPECT_THAT(Refusal(spec, args), testing::HasSubstr(words));
  };
  refused([](GemmArgs& a) { a.a_layout.type = DataType::kF32; }, "A f32, needs bf16");
  refused([](GemmArgs& a) { a.d_layout.type = DataType::kF32; }, "D f32, needs bf16");
  refused([](GemmArgs& a) { a.b_layout.order = Order::kRowMajor; }, "B row-major");
  refused([](GemmArgs& a) { a.d_layout.order = Order::kColMajor; }, "D column-major");
  refused([](GemmArgs& a) { a.b_layout.rows = 29; }, "B 29 x 20, needs 30 x 20");
  refused([](GemmArgs& a) { a.b_layout.pack = 1; }, "B in packing 1");
  refused([](GemmArgs& a) { a.a_layout.num = 2; }, "A grouped or indexed");
  refused([](GemmArgs& a) { a.v = At(0x5000); }, "scales beside an operand");
  refused([](GemmArgs& a) { a.b = nullptr; }, "B is null");
  refused([](GemmArgs& a) { a.a = At(0x1001); }, "A at 0x1001");
  refused([](GemmArgs& a) { a.beta = 0.5f; }, "beta = 0.5");
  const KernelSpec other = Hopper();
  const GemmArgs args = Problem(other, 10, 20, 30);
  EXPECT_THAT(GemmMmaLaunch(other, args, Device(132), {}).error().ToString(),
              testing::HasSubstr("a kernel of gemm_hopper"));
}

TEST(GemmLaunchTest, LooksAtCOnlyWhereItIsRead) {
  const KernelSpec spec = Adding(Mma());
  GemmArgs args = Problem(spec, 10, 20, 30);
  args.c = nullptr;
  args.c_layout = {};
  EXPECT_EQ(Refusal(spec, args), "");
  args.beta = 1;
  EXPECT_THAT(Refusal(spec, args), testing::HasSubstr("C f32, needs bf16"));
  args = Problem(spec, 10, 20, 30);
  args.beta = 1;
  EXPECT_EQ(Refusal(spec, args), "");
  args.c = args.d;
  EXPECT_EQ(Refusal(spec, args), "");
  args.c_layout.ld += 1;
  EXPECT_THAT(Refusal(spec, args), testing::HasSubstr("C in the place of D"));
  args.c = nullptr;
  EXPECT_THAT(Refusal(spec, args), testing::HasSubstr("C is null"));
}

TEST(GemmLaunchTest, RefusesWhatTmaCannotAddress) {
  GemmArgs args = Problem(Hopper(), 100, 200, 60);
  args.a_layout.ld = args.b_layout.ld = 64;
  EXPECT_EQ(Refusal(Hopper(), args), "") << "any k, with aligned lines";
  args.a_layout.ld = 60;
  cuda::LaunchResult no = GemmHopperLaunch(Hopper(), args, Device(132), {});
  ASSERT_FALSE(no);
  EXPECT_EQ(no.error().reason, Reason::kAlignment);
  EXPECT_EQ(no.error().have, "A: lines of 120 bytes");
  args.a_layout.ld = 64;
  args.b = At(0x2008);
  no = GemmHopperLaunch(Hopper(), args, Device(132), {});
  ASSERT_FALSE(no);
  EXPECT_EQ(no.error().reason, Reason::kAlignment);
  EXPECT_EQ(no.error().have, "B at 0x2008");
  args.b = At(0x2000);
  KernelSpec high = Hopper();
  high.tile_m = 512;  // no kernel of the family is: a box of 512 rows
  args = Problem(high, 600, 200, 64);
  no = GemmHopperLaunch(high, args, Device(132), {});
  ASSERT_FALSE(no);
  EXPECT_EQ(no.error().have, "A: box 1 = 512");
}

Extents GridOf(const KernelSpec& spec, std::int32_t m, std::int32_t n, int sm_count) {
  const GemmArgs args = Problem(spec, m, n, 64);
  const cuda::LaunchResult launch = spec.family == FamilyName("gemm_mma")
                                        ? GemmMmaLaunch(spec, args, Device(sm_count), {})
                                        : GemmHopperLaunch(spec, args, Device(sm_count), {});
  EXPECT_TRUE(launch) << launch.error().ToString();
  return launch ? launch->grid : Extents{};
}

TEST(GemmLaunchTest, GridCoversTheOutput) {
  EXPECT_EQ(GridOf(Mma(), 129, 128, 132), (Extents{2, 1, 1}));
  EXPECT_EQ(GridOf(Mma(), 4096, 4096, 132), (Extents{1024, 1, 1}));
  // Persistent: never more than fit at once, never more than there are tiles.
  EXPECT_EQ(GridOf(Hopper(), 4096, 4096, 132), (Extents{132, 1, 1}));
  EXPECT_EQ(GridOf(Hopper(), 129, 256, 132), (Extents{2, 1, 1}));
  EXPECT_EQ(GridOf(HopperPair(), 129, 256, 132), (Extents{2, 1, 1}));
  EXPECT_EQ(GridOf(HopperPair(), 1, 1, 132), (Extents{2, 1, 1}))
      << "both CTAs of a cluster, though one is idle";
  EXPECT_EQ(GridOf(HopperPair(), 4096, 4096, 133), (Extents{132, 1, 1}));
  // Not persistent: a cluster for each tile.
  EXPECT_EQ(GridOf(HopperShared(), 129, 256, 132), (Extents{4, 2, 1}));
  EXPECT_EQ(GridOf(HopperShared(), 4096, 4096, 132), (Extents{1024, 2, 1}));
  KernelSpec beside = HopperShared();
  beside.cluster_n = 4;
  EXPECT_EQ(GridOf(beside, 129, 640, 132), (Extents{4, 8, 1})) << "clusters of four tiles";
  beside.split_k = 0;
  EXPECT_EQ(GridOf(beside, 4096, 4096, 132), (Extents{33, 4, 1}));
}

KernelSpec HopperDivided() {
  KernelSpec spec = Hopper();
  spec.params[2] = cuda::kGemmHopperByShares;
  return spec;
}

TEST(GemmLaunchTest, DividesTheTilesOfTheLastRound) {
  const KernelSpec spec = HopperDivided();
  const auto shares = [&spec](int m, int n, int k) {
    return GemmHopperSharesOf(spec, {.m = m, .n = n, .k = k}, Device(132));
  };
  // 48 tiles of 64 k-tiles for 132 CTAs, 160 for one and 28 that are left over, and one for few.
  EXPECT_EQ(shares(512, 3072, 4096).tiles, 48);
  EXPECT_EQ(shares(512, 3072, 4096).count, 132);
  EXPECT_EQ(shares(512, 10240, 4096).tiles, 28);
  EXPECT_EQ(shares(512, 10240, 4096).count, 112) << "four for each leave 20 CTAs without work";
  EXPECT_EQ(shares(512, 11264, 4096).count, 132) << "44 tiles, three for each";
  EXPECT_EQ(cuda::GemmHopperShareBegin(shares(512, 11264, 4096), 64, 3), 64)
      << "a whole number for a tile";
  EXPECT_EQ(shares(100, 200, 4096).count, 8) << "no tile has more parts";
  EXPECT_EQ(shares(100, 200, 64 * 20).count, 2) << "no part has fewer than 8 k-tiles";
  EXPECT_EQ(shares(128 * 33, 1024, 4096).count, 0) << "132 tiles";
  EXPECT_EQ(shares(128 * 131, 256, 4096).count, 0) << "nothing to gain";
  EXPECT_EQ(shares(512, 3072, 128).count, 0) << "short k";

  const GemmArgs args = Problem(spec, 512, 3072, 4096);
  const WorkspaceSize size =
      GemmHopperWorkspace(spec, {.m = 512, .n = 3072, .k = 4096}, Device(132));
  EXPECT_EQ(size.partials, (132u + 48 - 1) * 128 * 256 * 4);
  EXPECT_EQ(size.barriers, 48u * 2 * 4);
  EXPECT_THAT(Refusal(spec, args), testing::HasSubstr("needs 23461888 and 384"));
  Workspace workspace;
  workspace.partials = At(0x10000);
  workspace.partials_size = size.partials;
  workspace.barriers = At(0x8000);
  workspace.barriers_size = size.barriers;
  const cuda::LaunchResult launch = GemmHopperLaunch(spec, args, Device(132), workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (Extents{132, 1, 1}));
  EXPECT_EQ(launch->workspace.bytes, size.partials + size.barriers);
  EXPECT_EQ(launch->workspace.zeroing, cuda::Zeroing::kOnce);
  const auto params = launch->params.As<cuda::GemmHopperParams>();
  ASSERT_TRUE(params);
  EXPECT_EQ(params->shares.count, 132);
  EXPECT_EQ(params->partials, workspace.partials);
  EXPECT_EQ(params->arrivals, workspace.barriers);
}

// Every k-tile of every divided tile belongs to one share, a share reaches into two tiles at most, and a
// part of one has at least three k-tiles.
TEST(GemmLaunchTest, SharesCoverEveryKTileOnce) {
  for (const int k_tiles : {8, 9, 17, 64, 112, 1000}) {
    for (int tiles = 1; tiles < 132; ++tiles) {
      const int n = 256 * tiles;
      const cuda::GemmHopperShares shares =
          GemmHopperSharesOf(HopperDivided(), {.m = 100, .n = n, .k = 64 * k_tiles}, Device(132));
      if (shares.count == 0) continue;
      ASSERT_EQ(shares.tiles, tiles);
      EXPECT_EQ(cuda::GemmHopperShareBegin(shares, k_tiles, 0), 0);
      EXPECT_EQ(cuda::GemmHopperShareBegin(shares, k_tiles, shares.count), tiles * k_tiles);
      for (int share = 0; share < shares.count; ++share) {
        const int begin = cuda::GemmHopperShareBegin(shares, k_tiles, share);
        const int end = cuda::GemmHopperShareBegin(shares, k_tiles, share + 1);
        ASSERT_LT(begin, end);
        EXPECT_LE((end - 1) / k_tiles - begin / k_tiles, 1);
        const int first_end = std::min(end, (begin / k_tiles + 1) * k_tiles);
        EXPECT_GE(first_end - begin, 3);
        EXPECT_TRUE(first_end == end || end - first_end >= 3);
      }
    }
  }
}

TEST(GemmLaunchTest, IsCompleteForEveryKernelOfTheCatalog) {
  for (const KernelFamily& family : {GemmMmaFamily(), GemmHopperFamily()}) {
    for (const KernelSpec& spec : family.catalog(kHopper)) {
      SCOPED_TRACE(SpecName(spec));
      const cuda::LaunchResult launch = LaunchOf(spec, Problem(spec, 136, 264, 64));
      ASSERT_TRUE(launch) << launch.error().ToString();
      EXPECT_EQ(launch->block, (Extents{family.launch(spec).threads, 1, 1}));
      EXPECT_EQ(launch->cluster, (Extents{1, 1, 1})) << "the cluster is part of the kernel";
      EXPECT_EQ(launch->dynamic_smem_bytes, family.launch(spec).dynamic_smem_bytes);
      EXPECT_EQ(launch->workspace.bytes, 0u);
      EXPECT_EQ(launch->workspace.zeroing, cuda::Zeroing::kNone);
      const bool maps = spec.family == FamilyName("gemm_hopper");
      EXPECT_EQ(launch->map_count, maps ? 3u : 0u);
      EXPECT_EQ(launch->params.size(),
                maps ? sizeof(cuda::GemmHopperParams) : sizeof(cuda::GemmMmaParams));
    }
  }
}

TEST(GemmLaunchTest, PassesTheArgumentsOn) {
  const KernelSpec spec = Adding(Mma());
  GemmArgs args = Problem(spec, 10, 20, 30);
  args.alpha = 0.5f;
  args.beta = 2;
  args.a_layout.ld = 31;
  args.b_layout.ld = 32;
  args.c_layout.ld = 33;
  args.d_layout.ld = 34;
  const cuda::LaunchResult launch = GemmMmaLaunch(spec, args, Device(132), {});
  ASSERT_TRUE(launch) << launch.error().ToString();
  const auto p = launch->params.As<cuda::GemmMmaParams>();
  ASSERT_TRUE(p);
  EXPECT_EQ(p->a, args.a);
  EXPECT_EQ(p->b, args.b);
  EXPECT_EQ(p->out.c, args.c);
  EXPECT_EQ(p->out.d, args.d);
  EXPECT_EQ(p->lda, 31);
  EXPECT_EQ(p->ldb, 32);
  EXPECT_EQ(p->out.ldc, 33);
  EXPECT_EQ(p->out.ldd, 34);
  EXPECT_EQ(p->out.m, 10);
  EXPECT_EQ(p->out.n, 20);
  EXPECT_EQ(p->out.k, 30);
  EXPECT_EQ(p->out.alpha, 0.5f);
  EXPECT_EQ(p->out.beta, 2.0f);
}

/// The kernel of 32 x 128 tiles, for few rows.
KernelSpec FewRows() {
  for (const KernelSpec& spec : GemmMmaFamily().catalog(kHopper)) {
    if (spec.tile_m == 32) return spec;
  }
  ADD_FAILURE() << "no tile of 32 rows";
  return Mma();
}

TEST(GemmLaunchTest, SplitsKWhereTilesAreFewAndKIsLong) {
  const auto splits = [](int m, int n, int k, int sms) {
    return GemmMmaSplits(FewRows(), {.m = m, .n = n, .k = k}, Device(sms));
  };
  EXPECT_GE(splits(32, 4096, 14336, 132), 4);
  EXPECT_GE(splits(32, 4096, 4096, 132), 3);
  EXPECT_GE(splits(1, 128, 4096, 132), 4);
  EXPECT_EQ(splits(32, 28672, 4096, 132), 1) << "a wave of tiles";
  EXPECT_EQ(splits(32, 128256, 4096, 132), 1);
  EXPECT_EQ(splits(4096, 4096, 4096, 132), 1);
  EXPECT_EQ(splits(32, 128, 64, 132), 1) << "one step of k";
  EXPECT_LE(splits(32, 128, 256, 132), 4);
  EXPECT_EQ(splits(32, 4096, 4096, 1), 1) << "nobody to share with";
  DeviceSpec measured = Device(132);
  measured.read_gb_s = 100;
  measured.bf16_gflop_s = 1e9;
  EXPECT_EQ(GemmMmaSplits(FewRows(), {.m = 32, .n = 4096, .k = 4096}, measured),
            splits(32, 4096, 4096, 132))
      << "whatever rates were measured";
  EXPECT_EQ(GemmMmaSplits(Mma(), {.m = 128, .n = 128, .k = 4096}, Device(132)), 1)
      << "no registers left";
}

TEST(GemmLaunchTest, SplitsNeedTheirWorkspace) {
  const KernelSpec spec = FewRows();
  const GemmArgs args = Problem(spec, 32, 4096, 14336);
  const GemmShape shape{.m = 32, .n = 4096, .k = 14336};
  const int splits = GemmMmaSplits(spec, shape, Device(132));
  const WorkspaceSize size = GemmMmaWorkspace(spec, shape, Device(132));
  EXPECT_EQ(size.partials, std::size_t{32} * splits * 32 * 128 * 4);
  EXPECT_EQ(size.barriers, std::size_t{32} * 4);
  EXPECT_THAT(Refusal(spec, args), testing::HasSubstr("a workspace of 0 bytes of partials"));
  Workspace workspace;
  workspace.partials = At(0x10000);
  workspace.partials_size = size.partials;
  workspace.barriers = At(0x8000);
  workspace.barriers_size = size.barriers;
  const cuda::LaunchResult launch = GemmMmaLaunch(spec, args, Device(132), workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (Extents{32 * static_cast<std::uint32_t>(splits), 1, 1}));
  EXPECT_EQ(launch->workspace.bytes, size.partials + size.barriers);
  EXPECT_EQ(launch->workspace.zeroing, cuda::Zeroing::kOnce);
  const auto p = launch->params.As<cuda::GemmMmaParams>();
  ASSERT_TRUE(p);
  EXPECT_EQ(p->splits, splits);
  EXPECT_EQ(p->partials, workspace.partials);
  EXPECT_EQ(p->arrivals, workspace.barriers);
}

/// The tensor map of an operand: its size, bytes from line to line, and box.
cuda::TensorMapDesc Map(DataType type, std::uint64_t address, std::array<std::uint64_t, 2> size,
                        std::uint64_t stride, std::array<std::uint32_t, 2> box) {
  cuda::TensorMapDesc desc{.type = type, .address = address};
  desc.dims = {size[0], size[1]};
  desc.strides = {stride};
  desc.box = {box[0], box[1]};
  return desc;
}

/// The maps of a launch by the operand they describe; those of none have rank 0.
struct Maps {
  Maps(const KernelSpec& spec, const GemmArgs& args) {
    const cuda::LaunchResult launch = GemmHopperLaunch(spec, args, Device(132), {});
    EXPECT_TRUE(launch) << launch.error().ToString();
    if (!launch) return;
    for (const cuda::TensorMapSlot& slot : launch->maps()) {
      (slot.offset == offsetof(cuda::GemmHopperParams, a)   ? a
       : slot.offset == offsetof(cuda::GemmHopperParams, b) ? b
                                                            : d) = slot.desc;
    }
  }
  cuda::TensorMapDesc a{.rank = 0}, b{.rank = 0}, d{.rank = 0};
};

TEST(GemmLaunchTest, DescribesOperandsToTma) {
  GemmArgs args = Problem(Hopper(), 100, 200, 60);
  args.a_layout.ld = 64;
  args.b_layout.ld = 72;
  const Maps maps(Hopper(), args);
  EXPECT_EQ(maps.a, Map(DataType::kBF16, 0x1000, {60, 100}, 128, {64, 104}))
      << "rows that no tile has are not fetched";
  EXPECT_EQ(maps.b, Map(DataType::kBF16, 0x2000, {60, 200}, 144, {64, 256}));
  EXPECT_EQ(maps.d, Map(DataType::kBF16, 0x3000, {200, 100}, 400, {64, 64}));
  EXPECT_EQ(Maps(HopperPair(), args).b.box[1], 128u);
  KernelSpec beside = HopperShared();
  beside.cluster_n = 2;
  EXPECT_EQ(Maps(beside, args).a.box[1], 56u) << "half of the rows, in eights";

  KernelSpec nt = Hopper();
  nt.order_a = Order::kColMajor;
  nt.order_b = Order::kRowMajor;
  args = Problem(nt, 100, 200, 60);
  args.a_layout.ld = 104;
  const Maps other(nt, args);
  EXPECT_EQ(other.a, Map(DataType::kBF16, 0x1000, {100, 60}, 208, {64, 64}));
  EXPECT_EQ(other.b, Map(DataType::kBF16, 0x2000, {200, 60}, 400, {64, 64}));
}

TEST(GemmLaunchTest, DescribesTheResultToTmaWhereItCanBeStoredSo) {
  KernelSpec f32 = Hopper();
  f32.type_d = DataType::kF32;
  GemmArgs args = Problem(f32, 100, 200, 64);
  args.d_layout.ld = 204;
  EXPECT_EQ(Maps(f32, args).d, Map(DataType::kF32, 0x3000, {200, 100}, 816, {32, 64}));
  args = Problem(Hopper(), 100, 200, 64);
  args.d_layout.ld = 204;
  EXPECT_EQ(Maps(Hopper(), args).d.rank, 0u) << "lines of 408 bytes";
  args = Problem(Hopper(), 100, 201, 64);
  args.d_layout.ld = 208;
  EXPECT_EQ(Maps(Hopper(), args).d.rank, 0u) << "the last chunk of a line is not whole";
  args = Problem(Hopper(), 100, 200, 64);
  args.d = At(0x3008);
  EXPECT_EQ(Maps(Hopper(), args).d.rank, 0u) << "an address of 8 mod 16";
}

}  // namespace
}  // namespace tilewright
