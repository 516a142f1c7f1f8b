#include "ops/gemm/cuda/families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ops/gemm/cuda/family_checks.h"
#include "tilewright/cuda/gemm_params.h"

namespace tilewright {
namespace {

const CudaArch kArchs[] = {{80, 0}, {86, 0}, {89, 0}, {90, 0}, {90, 'a'}, {100, 'a'}, {120, 0}};

KernelFamilies Families() {
  KernelFamilies families;
  const Status added = AddGemmFamilies(families);
  EXPECT_TRUE(added) << added.error().message;
  return families;
}

KernelSpec FirstOf(const KernelFamily& family, CudaArch arch) { return family.catalog(arch).at(0); }

TEST(GemmFamilies, ShipOnlySpecsTheyAcceptEachOnce) {
  const KernelFamilies families = Families();
  for (const CudaArch arch : kArchs) {
    const std::vector<KernelSpec> catalog = families.Catalog(arch);
    EXPECT_EQ(std::set(catalog.begin(), catalog.end()).size(), catalog.size());
    for (const KernelSpec& spec : catalog) {
      EXPECT_EQ(spec.arch, arch);
      const KernelFamily* family = families.Find(spec.family);
      ASSERT_NE(family, nullptr);
      EXPECT_EQ(family->check(spec), std::nullopt) << SpecName(spec);
      EXPECT_LE(family->launch(spec).dynamic_smem_bytes, MaxSmemBytes(arch)) << SpecName(spec);
      EXPECT_LE(family->launch(spec).threads * family->limits(spec).max_registers, 65536u + 255u);
    }
  }
}

TEST(GemmFamilies, HaveAllFourLayoutsEverywhere) {
  const KernelFamilies families = Families();
  for (const CudaArch arch : kArchs) {
    for (const Order a : {Order::kRowMajor, Order::kColMajor}) {
      for (const Order b : {Order::kRowMajor, Order::kColMajor}) {
        for (const DataType type : {DataType::kBF16, DataType::kF16}) {
          const std::vector<KernelSpec> catalog = families.Catalog(arch);
          EXPECT_TRUE(std::any_of(catalog.begin(), catalog.end(), [&](const KernelSpec& spec) {
            return spec.order_a == a && spec.order_b == b && spec.type_a == type;
          })) << arch.ToString();
        }
      }
    }
  }
}

TEST(GemmFamilies, HopperKernelsExistForSm90aOnly) {
  const KernelFamily hopper = GemmHopperFamily();
  for (const CudaArch arch : kArchs) {
    EXPECT_EQ(hopper.catalog(arch).empty(), !(arch == CudaArch{90, 'a'})) << arch.ToString();
  }
  KernelSpec spec = FirstOf(hopper, {90, 'a'});
  spec.arch = {90, 0};
  const std::optional<Rejection> no = hopper.check(spec);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->reason, Reason::kDevice);
}

TEST(GemmFamilies, OfferAModelTheKernelsOfItsWeightType) {
  const std::vector<KernelSpec> hopper = GemmSpecsForWeight(DataType::kBF16, {90, 'a'});
  EXPECT_GE(hopper.size(), 10u);
  for (const KernelSpec& spec : hopper) {
    EXPECT_EQ(spec.type_b, DataType::kBF16);
    EXPECT_EQ(spec.order_b, Order::kColMajor);
  }
  EXPECT_FALSE(GemmSpecsForWeight(DataType::kF16, {80, 0}).empty());
  EXPECT_TRUE(GemmSpecsForWeight(DataType::kQ8_0, {90, 'a'}).empty());
}

struct Change {
  const char* what;
  void (*apply)(KernelSpec&);
  Reason reason;
};

void ExpectRefused(const KernelFamily& family, const KernelSpec& good, const Change& change) {
  KernelSpec spec = good;
  ASSERT_EQ(family.check(spec), std::nullopt);
  change.apply(spec);
  const std::optional<Rejection> no = family.check(spec);
  ASSERT_TRUE(no) << change.what;
  EXPECT_EQ(no->reason, change.reason) << change.what << ": " << no->ToString();
}

const Change kCommon[] = {
    {"f32 operands", [](KernelSpec& s) { s.type_a = s.type_b = DataType::kF32; }, Reason::kType},
    {"mixed operands", [](KernelSpec& s) { s.type_b = DataType::kF16; }, Reason::kType},
    {"int8 output", [](KernelSpec& s) { s.type_d = DataType::kI8; }, Reason::kType},
    {"C without add", [](KernelSpec& s) { s.type_c = DataType::kBF16; }, Reason::kType},
    {"add without C", [](KernelSpec& s) { s.epilogue = SpecEpilogue::kAdd; }, Reason::kType},
    {"scale", [](KernelSpec& s) { s.epilogue = SpecEpilogue::kScale; }, Reason::kEpilogue},
    {"three splits of k", [](KernelSpec& s) { s.split_k = 3; }, Reason::kShape},
    {"one stage", [](KernelSpec& s) { s.stages = 1; }, Reason::kShape},
    {"too many stages for the memory", [](KernelSpec& s) { s.stages = 8; }, Reason::kWorkspace},
    {"three warps", [](KernelSpec& s) { s.warps = 3; }, Reason::kShape},
    {"odd tile", [](KernelSpec& s) { s.tile_n = 100; }, Reason::kShape},
    {"odd depth", [](KernelSpec& s) { s.tile_k = 48; }, Reason::kShape},
    {"a column cluster of three", [](KernelSpec& s) { s.cluster_n = 3; }, Reason::kShape},
    {"param3", [](KernelSpec& s) { s.params[3] = 1; }, Reason::kShape},
    {"no raster band", [](KernelSpec& s) { s.params[0] = s.params[1] = 0; }, Reason::kShape},
};

TEST(GemmFamilies, MmaRefusesWhatItsSourceCannotBe) {
  const KernelFamily family = GemmMmaFamily();
  const KernelSpec good = FirstOf(family, {89, 0});
  for (const Change& change : kCommon) ExpectRefused(family, good, change);
  ExpectRefused(family, good, {"sm_75", [](KernelSpec& s) { s.arch = {75, 0}; }, Reason::kDevice});
  ExpectRefused(family, good, {"cluster", [](KernelSpec& s) { s.cluster_m = 2; }, Reason::kShape});
  ExpectRefused(family, good, {"split k", [](KernelSpec& s) { s.split_k = 2; }, Reason::kShape});
  ExpectRefused(
      family, good,
      {"more rows of warps than warps", [](KernelSpec& s) { s.params[0] = 8; }, Reason::kShape});
  ExpectRefused(family, good,
                {"256 accumulators", [](KernelSpec& s) { s.tile_m = 256; }, Reason::kShape});
}

TEST(GemmFamilies, HopperRefusesWhatItsSourceCannotBe) {
  const KernelFamily family = GemmHopperFamily();
  const KernelSpec good = FirstOf(family, {90, 'a'});
  for (const Change& change : kCommon) ExpectRefused(family, good, change);
  ExpectRefused(family, good,
                {"cluster of 8", [](KernelSpec& s) { s.cluster_m = 8; }, Reason::kShape});
  ExpectRefused(family, good,
                {"another walk", [](KernelSpec& s) { s.params[2] = 3; }, Reason::kShape});
  ExpectRefused(family, good,
                {"divided tiles that clusters share",
                 [](KernelSpec& s) {
                   s.params[2] = cuda::kGemmHopperByShares;
                   s.tile_n = 128;
                   s.split_k = 2;
                 },
                 Reason::kShape});
  ExpectRefused(family, good,
                {"one warpgroup that takes turns",
                 [](KernelSpec& s) {
                   s.params[2] = cuda::kGemmHopperPingPong;
                   s.tile_m = 64;
                   s.warps = 8;
                 },
                 Reason::kShape});
  ExpectRefused(family, good,
                {"256 accumulators a thread",
                 [](KernelSpec& s) { s.params[2] = cuda::kGemmHopperPingPong; }, Reason::kShape});
  ExpectRefused(
      family, good,
      {"192 rows for two warpgroups", [](KernelSpec& s) { s.tile_m = 192; }, Reason::kShape});
  ExpectRefused(family, good,
                {"N-major tile of 96 columns",
                 [](KernelSpec& s) {
                   s.order_b = Order::kRowMajor;
                   s.tile_n = 96;
                 },
                 Reason::kShape});
  ExpectRefused(family, good,
                {"a shared tile in a cluster of tiles",
                 [](KernelSpec& s) { s.split_k = s.cluster_m = 2; }, Reason::kShape});
  ExpectRefused(family, good,
                {"a column cluster of a column-major A",
                 [](KernelSpec& s) {
                   s.order_a = Order::kColMajor;
                   s.cluster_n = 2;
                 },
                 Reason::kShape});
  ExpectRefused(family, good,
                {"16 CTAs in a cluster",
                 [](KernelSpec& s) {
                   s.split_k = 4;
                   s.cluster_n = 4;
                 },
                 Reason::kShape});
  ExpectRefused(family, good,
                {"16 CTAs in a cluster of both directions",
                 [](KernelSpec& s) { s.cluster_m = s.cluster_n = 4; }, Reason::kShape});
  ExpectRefused(family, good,
                {"divided tiles of 80 columns",
                 [](KernelSpec& s) {
                   s.params[2] = cuda::kGemmHopperByShares;
                   s.tile_n = 80;
                 },
                 Reason::kShape});
  ExpectRefused(family, good,
                {"12 columns for each CTA",
                 [](KernelSpec& s) {
                   s.tile_n = 96;
                   s.split_k = 8;
                 },
                 Reason::kShape});
  ExpectRefused(family, good,
                {"96 columns for each CTA",
                 [](KernelSpec& s) {
                   s.tile_n = 192;
                   s.split_k = 2;
                 },
                 Reason::kShape});
  ExpectRefused(family, good,
                {"a ring with no room for the sums",
                 [](KernelSpec& s) {
                   s.split_k = 2;
                   s.stages = 3;
                 },
                 Reason::kWorkspace});
  ExpectRefused(
      family, good,
      {"two CTAs with 128 accumulators", [](KernelSpec& s) { s.params[1] = 2; }, Reason::kShape});
  ExpectRefused(family, good,
                {"two CTAs of 12 warps with 64 accumulators",
                 [](KernelSpec& s) {
                   s.tile_n = 128;
                   s.params[1] = 2;
                 },
                 Reason::kShape});
}

}  // namespace
}  // namespace tilewright
