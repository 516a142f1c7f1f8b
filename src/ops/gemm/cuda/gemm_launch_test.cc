#include "ops/gemm/cuda/gemm_launch.h"

#include <gtest/gtest.h>

#include "ops/gemm/cuda/families.h"

namespace tilewright {
namespace {

constexpr CudaArch kHopper{90, 'a'};

KernelSpec Mma() { return GemmMmaFamily().catalog({80, 0}).at(0); }        // tn, 128 x 128
KernelSpec Hopper() { return GemmHopperFamily().catalog(kHopper).at(0); }  // tn, 128 x 256
KernelSpec HopperPair() {
  KernelSpec spec = Hopper();
  spec.cluster_m = 2;
  return spec;
}

GemmLaunch Problem(std::int32_t m, std::int32_t n, std::int32_t k) {
  return {
      .m = m, .n = n, .k = k, .lda = k, .ldb = k, .ldd = n, .a = 0x1000, .b = 0x2000, .d = 0x3000};
}

TEST(GemmLaunchTest, TakesAnyShapeWithMma) {
  GemmLaunch odd = Problem(1, 3, 5);
  odd.a = 0x1002;
  odd.lda = 7;
  EXPECT_EQ(CheckGemmLaunch(Mma(), odd), std::nullopt);
  EXPECT_TRUE(CheckGemmLaunch(Mma(), Problem(0, 3, 5)));
  EXPECT_TRUE(CheckGemmLaunch(Mma(), Problem(1, 3, 0)));
  EXPECT_TRUE(CheckGemmLaunch(Mma(), Problem(2147483647, 1, 1)));
  EXPECT_TRUE(CheckGemmLaunch(Mma(), Problem(2147480000, 2147480000, 1)));
}

TEST(GemmLaunchTest, RefusesLinesShorterThanTheirContents) {
  for (const KernelSpec& base : GemmMmaFamily().catalog({80, 0})) {
    GemmLaunch launch{.m = 10, .n = 20, .k = 30, .ldd = 20};
    launch.lda = base.order_a == Order::kRowMajor ? 30 : 10;
    launch.ldb = base.order_b == Order::kColMajor ? 30 : 20;
    EXPECT_EQ(CheckGemmLaunch(base, launch), std::nullopt) << SpecName(base);
    for (std::int64_t GemmLaunch::*ld : {&GemmLaunch::lda, &GemmLaunch::ldb, &GemmLaunch::ldd}) {
      GemmLaunch shorter = launch;
      shorter.*ld -= 1;
      const std::optional<Rejection> no = CheckGemmLaunch(base, shorter);
      ASSERT_TRUE(no) << SpecName(base);
      EXPECT_EQ(no->reason, Reason::kShape);
    }
  }
}

TEST(GemmLaunchTest, RefusesWhatTmaCannotAddress) {
  GemmLaunch launch = Problem(100, 200, 60);
  launch.lda = launch.ldb = 64;
  EXPECT_EQ(CheckGemmLaunch(Hopper(), launch), std::nullopt) << "any k, with aligned lines";
  launch.lda = 60;
  std::optional<Rejection> no = CheckGemmLaunch(Hopper(), launch);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->reason, Reason::kAlignment);
  EXPECT_EQ(no->have, "lda = 60");
  launch.lda = 64;
  launch.b = 0x2008;
  no = CheckGemmLaunch(Hopper(), launch);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->have, "b at 0x2008");
}

TEST(GemmLaunchTest, GridCoversTheOutput) {
  EXPECT_EQ(GemmGrid(Mma(), 129, 128, 132), 2u);
  EXPECT_EQ(GemmGrid(Mma(), 4096, 4096, 132), 1024u);
  // Persistent: never more than fit at once, never more than there are tiles.
  EXPECT_EQ(GemmGrid(Hopper(), 4096, 4096, 132), 132u);
  EXPECT_EQ(GemmGrid(Hopper(), 129, 256, 132), 2u);
  EXPECT_EQ(GemmGrid(HopperPair(), 129, 256, 132), 2u);
  EXPECT_EQ(GemmGrid(HopperPair(), 1, 1, 132), 2u) << "both CTAs of a cluster, though one is idle";
  EXPECT_EQ(GemmGrid(HopperPair(), 4096, 4096, 133), 132u);
}

TEST(GemmLaunchTest, DescribesOperandsToTma) {
  GemmLaunch launch = Problem(100, 200, 60);
  launch.lda = 64;
  launch.ldb = 72;
  GemmTensorMaps maps = GemmHopperMaps(Hopper(), launch);
  EXPECT_EQ(maps.a, (TmaDesc{.type = DataType::kBF16,
                             .address = 0x1000,
                             .size = {60, 100},
                             .stride_bytes = 128,
                             .box = {64, 128}}));
  EXPECT_EQ(maps.b, (TmaDesc{.type = DataType::kBF16,
                             .address = 0x2000,
                             .size = {60, 200},
                             .stride_bytes = 144,
                             .box = {64, 256}}));
  EXPECT_EQ(maps.d, (TmaDesc{.type = DataType::kBF16,
                             .address = 0x3000,
                             .size = {200, 100},
                             .stride_bytes = 400,
                             .box = {64, 64}}));
  EXPECT_EQ(GemmHopperMaps(HopperPair(), launch).b.box, (std::array<std::uint32_t, 2>{64, 128}));

  KernelSpec nt = Hopper();
  nt.order_a = Order::kColMajor;
  nt.order_b = Order::kRowMajor;
  launch.lda = 104;
  launch.ldb = 200;
  maps = GemmHopperMaps(nt, launch);
  EXPECT_EQ(maps.a, (TmaDesc{.type = DataType::kBF16,
                             .address = 0x1000,
                             .size = {100, 60},
                             .stride_bytes = 208,
                             .box = {64, 64}}));
  EXPECT_EQ(maps.b, (TmaDesc{.type = DataType::kBF16,
                             .address = 0x2000,
                             .size = {200, 60},
                             .stride_bytes = 400,
                             .box = {64, 64}}));
}

TEST(GemmLaunchTest, DescribesTheResultToTmaWhereItCanBeStoredSo) {
  KernelSpec spec = Hopper();
  GemmLaunch launch = Problem(100, 200, 64);
  spec.type_d = DataType::kF32;
  launch.ldd = 204;
  EXPECT_EQ(GemmHopperMaps(spec, launch).d, (TmaDesc{.type = DataType::kF32,
                                                     .address = 0x3000,
                                                     .size = {200, 100},
                                                     .stride_bytes = 816,
                                                     .box = {32, 64}}));
  spec.type_d = DataType::kBF16;
  EXPECT_EQ(GemmHopperMaps(spec, launch).d, std::nullopt) << "lines of 408 bytes";
  launch.ldd = 208;
  launch.n = 201;
  EXPECT_EQ(GemmHopperMaps(spec, launch).d, std::nullopt)
      << "the last chunk of a line is not whole";
  launch.n = 200;
  launch.d = 0x3008;
  EXPECT_EQ(GemmHopperMaps(spec, launch).d, std::nullopt) << "an address of 8 mod 16";
}

}  // namespace
}  // namespace tilewright
