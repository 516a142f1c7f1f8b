#include "device/cuda/kernels/hopper_emulation.h"
#include "device/cuda/kernels/hopper_registers_emulation.h"
#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/tensor_map_emulation.h"
// After it: the kernels use its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/formats/formats.h"
#include "core/test_util.h"
#include "device/cuda/block_types.h"
#include "ops/gemm/cuda/gemm_q/block_product.h"
#include "ops/gemm/cuda/gemm_qw/families.h"
#include "ops/gemm/cuda/gemm_qw/gemm_qw_kernel.cuh"
#include "ops/gemm/cuda/gemm_qw/gemm_qw_launch.h"
#include "ops/gemm/cuda/gemm_qw/rounded_weights.h"
#include "ops/gemm/cuda/launch_case.h"

// The source of the kernels, run on the CPU as GemmQwLaunch launches them, against float64.

namespace tilewright {
namespace {

using test::DeviceOf;
using test::PaddedShape;
using tw::Type;
constexpr CudaArch kHopper{90, 'a'};
constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }

/// `sms`: multiprocessors, at most so many CTAs.
template <Type kW, int kTileM, int kTileN, int kParts, int kStages, Type kY = Type::kF32,
          bool kGated = false, int kCtas = 1>
void ExpectProduct(test::BlockShape shape, int sms = 1) {
  SCOPED_TRACE(testing::Message() << "m " << shape.m << " n " << shape.n << " k " << shape.k
                                  << " tile " << kTileM << "x" << kTileN << " parts " << kParts
                                  << " pad " << shape.pad_w << " on " << sms);
  shape.gated = kGated;
  test::BlockProduct product(DataTypeOf(kW), DataTypeOf(kY), shape);
  KernelSpec spec = product.SpecOf(kGemmQw);
  spec.stages = kStages;
  spec.tile_m = kTileM;
  spec.tile_n = kTileN;
  spec.tile_k = cuda::kGemmQTileK;
  spec.warps = 4 * (kTileN / 64 * kParts + 1);
  spec.params = {kParts, kCtas, 0, 0};
  const std::optional<Rejection> no = GemmQwFamily().check(spec);
  ASSERT_FALSE(no) << no->ToString();

  const DeviceSpec device = DeviceOf(sms);
  const WorkspaceSize size =
      GemmQwWorkspace(spec, {.m = shape.m, .n = shape.n, .k = shape.k}, device);
  test::GuardedWorkspace memory(size);
  cuda::LaunchResult launch = GemmQwLaunch(spec, product.args, device, memory.workspace());
  ASSERT_TRUE(launch) << launch.error().ToString();
  ASSERT_TRUE(cuda::EncodeMaps(*launch, &tw::emulation::EncodeMap));
  std::tie(tw::emulation::readable_begin, tw::emulation::readable_end) = product.ReadableX();
  constexpr unsigned int kThreads = 128 * (kTileN / 64 * kParts + 1);
  const auto run = [&] {
    tw::emulation::barriers.clear();
    // Warps finish at different times: what RunLaunch returns does not matter here.
    tw::emulation::RunLaunch<tw::GemmQwParams>(*launch, kThreads, [](const tw::GemmQwParams& p) {
      constexpr auto kEpilogue = kGated ? tw::Epilogue::kSwiGlu : tw::Epilogue::kAdd;
      tw::GemmQw<kW, kGated ? Type::kNone : kY, kY, kEpilogue, kTileM, kTileN, kParts,
                 kStages>::Run(p, tw::emulation::OwnSmem());
    });
    EXPECT_FALSE(tw::emulation::fault) << "an illegal access, a surplus arrival or a hang";
    memory.ExpectIntact();
    return product.Result();
  };
  const std::vector<double> once = run();
  if (sms > 1) {  // where CTAs share tiles
    product.Poison();
    const std::vector<double> again = run();
    const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    EXPECT_TRUE(std::equal(once.begin(), once.end(), again.begin(), same)) << "other bits";
  }
  tw::emulation::readable_begin = nullptr;
  product.RoundWeights(&test::RoundAsGemmQw<float>);
  product.Expect();
}

/// Tiles of every number of rows, warpgroups that share rows and that do not, and edges of all kinds.
template <Type kType>
void ExpectBlocks(std::initializer_list<int> ks) {
  for (const int k : ks) {
    ExpectProduct<kType, 16, 64, 4, 3>(PaddedShape(DataTypeOf(kType), 5, 70, k));
    ExpectProduct<kType, 32, 128, 2, 2>(PaddedShape(DataTypeOf(kType), 32, 100, k));
    ExpectProduct<kType, 64, 64, 1, 2>(PaddedShape(DataTypeOf(kType), 50, 64, k));
  }
}

TEST(GemmQwTest, BlocksOf32OfEveryNumberOfBlocks) {
  ExpectBlocks<Type::kQ4_0>({32, 224, 256, 288});
  ExpectBlocks<Type::kQ4_1>({32, 224, 256, 288});
  ExpectBlocks<Type::kQ8_0>({32, 224, 256, 288, 1056});
}

TEST(GemmQwTest, BlocksOfCodesOfEveryNumberOfBlocks) {
  cuda::ForEachBlockOfCodes([]<Type kType>() {
    if (GemmQwSpecsForWeight(DataTypeOf(kType), kHopper).empty()) return;  // no whole 16 bytes
    const int block = tw::Codes<kType>::kBlock;
    ExpectProduct<kType, 16, 64, 4, 2>(PaddedShape(DataTypeOf(kType), 5, 70, 512 + block));
  });
}

TEST(GemmQwTest, BlocksOf256OfEveryNumberOfBlocks) {
  ExpectBlocks<Type::kQ4_K>({256, 768});
  ExpectBlocks<Type::kQ5_K>({256, 768});
  ExpectBlocks<Type::kQ6_K>({256, 768, 2048});
}

// 210 bytes behind each other begin at every even place between two multiples of 16; the last box ends with the row.
TEST(GemmQwTest, KTilesThatBeginAnywhere) {
  ExpectProduct<Type::kQ6_K, 32, 128, 2, 2>({.m = 32, .n = 130, .k = 2048});
  ExpectProduct<Type::kQ6_K, 16, 64, 4, 3>({.m = 9, .n = 70, .k = 4096}, 3);
  ExpectProduct<Type::kQ6_K, 32, 64, 1, 2>(PaddedShape(DataType::kQ6_K, 20, 64, 2304), 5);
}

TEST(GemmQwTest, TheAddendAndAlphaAreApplied) {
  ExpectProduct<Type::kQ8_0, 16, 64, 4, 2>({.m = 18, .n = 70, .k = 512, .alpha = -0.5f, .beta = 2});
  ExpectProduct<Type::kQ4_1, 32, 64, 2, 2, Type::kBF16>(
      {.m = 30, .n = 64, .k = 256, .alpha = 3, .beta = 1});
}

TEST(GemmQwTest, GateAndUpAreOneProduct) {
  ExpectProduct<Type::kQ8_0, 32, 128, 2, 2, Type::kBF16, true>({.m = 31, .n = 96, .k = 256});
  ExpectProduct<Type::kQ4_K, 32, 64, 4, 2, Type::kF32, true>(
      {.m = 33, .n = 160, .k = 512, .alpha = -1.5f});
  ExpectProduct<Type::kQ6_K, 32, 128, 2, 2, Type::kBF16, true>({.m = 31, .n = 96, .k = 2048}, 3);
}

// Scales from the least of f16 to 1 beside each other, and values that cancel their offsets.
TEST(GemmQwTest, BlocksOfRandomBits) {
  cuda::ForEachBlockOfCodes([]<Type kType>() {
    if (GemmQwSpecsForWeight(DataTypeOf(kType), kHopper).empty()) return;
    test::BlockShape shape = PaddedShape(DataTypeOf(kType), 20, 100, 2048);
    shape.random_blocks = true;
    ExpectProduct<kType, 32, 128, 2, 2>(shape);
  });
  test::BlockShape shape{.m = 20, .n = 100, .k = 2048};
  shape.random_blocks = true;
  ExpectProduct<Type::kQ6_K, 32, 128, 2, 2>(shape);
}

// Weights and activations beyond f16 on either side, and one of them beside the other as usual; alpha makes
// the product one of ordinary size.
TEST(GemmQwTest, WhatF16DoesNotHoldIsMultipliedAllTheSame) {
  for (const auto& [x_scale, w_scale] : std::initializer_list<std::pair<double, double>>{
           {1e6, 0.05}, {1e-9, 0.05}, {1, 1e4}, {1, 1e-5}, {1e20, 1e4}, {1e-20, 1e-5}}) {
    SCOPED_TRACE(testing::Message() << x_scale << " times " << w_scale);
    const auto alpha = static_cast<float>(1 / (x_scale * w_scale));
    ExpectProduct<Type::kQ8_0, 32, 128, 2, 2>(
        {.m = 20, .n = 70, .k = 512, .alpha = alpha, .x_scale = x_scale, .w_scale = w_scale}, 3);
    ExpectProduct<Type::kQ4_K, 16, 64, 4, 2>(
        {.m = 18, .n = 70, .k = 512, .alpha = alpha, .x_scale = x_scale, .w_scale = w_scale});
    ExpectProduct<Type::kQ5_1, 64, 64, 1, 2>({.m = 50,
                                              .n = 64,
                                              .k = 512,

                                              .alpha = alpha,
                                              .x_scale = x_scale,
                                              .w_scale = w_scale});
    for (const int sms : {1, 3}) {
      ExpectProduct<Type::kQ6_K, 32, 128, 2, 2>(
          {.m = 20, .n = 70, .k = 2048, .alpha = alpha, .x_scale = x_scale, .w_scale = w_scale},
          sms);
    }
  }
}

// Runs of k-tiles that end anywhere: one CTA takes all of them, several share output tiles, and there
// are as many CTAs as k-tiles.
TEST(GemmQwTest, CtasThatShareOutputTilesLeaveNothingOut) {
  for (const int sms : {1, 2, 3, 5, 7, 12}) {
    ExpectProduct<Type::kQ8_0, 16, 64, 4, 2>({.m = 20, .n = 130, .k = 512, .alpha = 2, .beta = 1},
                                             sms);
    ExpectProduct<Type::kQ4_K, 32, 128, 2, 3, Type::kBF16>({.m = 9, .n = 256, .k = 1280}, sms);
    ExpectProduct<Type::kQ6_K, 32, 128, 2, 3, Type::kBF16>(
        {.m = 9, .n = 200, .k = 2048, .alpha = 2, .beta = 1}, sms);
  }
  ExpectProduct<Type::kQ8_0, 32, 64, 4, 2, Type::kBF16, true>({.m = 32, .n = 96, .k = 1536}, 5);
}

TEST(GemmQwTest, ShapesThatAreShipped) {
  ExpectProduct<Type::kQ8_0, 16, 128, 2, 5, Type::kBF16>({.m = 16, .n = 128, .k = 1024}, 3);
  ExpectProduct<Type::kQ8_0, 32, 128, 2, 4, Type::kBF16>({.m = 32, .n = 200, .k = 1280}, 2);
  ExpectProduct<Type::kQ8_0, 32, 192, 1, 3, Type::kBF16>({.m = 32, .n = 320, .k = 1024}, 3);
  ExpectProduct<Type::kQ4_K, 32, 256, 1, 3, Type::kF32>({.m = 25, .n = 260, .k = 768}, 2);
  ExpectProduct<Type::kQ8_0, 64, 128, 1, 3, Type::kBF16>({.m = 64, .n = 136, .k = 1024}, 2);
  ExpectProduct<Type::kQ8_0, 32, 192, 1, 2, Type::kBF16, true>({.m = 32, .n = 416, .k = 512}, 4);
  ExpectProduct<Type::kQ6_K, 16, 128, 2, 5, Type::kBF16>({.m = 16, .n = 128, .k = 2048}, 3);
  ExpectProduct<Type::kQ6_K, 32, 128, 2, 4, Type::kBF16>({.m = 32, .n = 200, .k = 2048}, 2);
  ExpectProduct<Type::kQ6_K, 32, 192, 1, 3, Type::kF32>({.m = 25, .n = 260, .k = 2048}, 3);
  ExpectProduct<Type::kQ6_K, 64, 128, 1, 3, Type::kBF16>({.m = 64, .n = 136, .k = 2048}, 2);
}

// Two CTAs on a multiprocessor.
TEST(GemmQwTest, TwiceAsManyCtasAsMultiprocessors) {
  ExpectProduct<Type::kQ8_0, 32, 64, 2, 3, Type::kBF16, false, 2>({.m = 32, .n = 96, .k = 1536}, 3);
}

TEST(GemmQwFamilyTest, EverySpecOfTheCatalogPassesItsCheckOnce) {
  KernelFamilies families;
  ASSERT_TRUE(AddGemmQwFamily(families));
  EXPECT_FALSE(AddGemmQwFamily(families)) << "the name is taken";
  const KernelFamily& family = *families.Find(FamilyName(kGemmQw));
  const std::vector<KernelSpec> all = families.Catalog(kHopper);
  ASSERT_GE(all.size(), 56u);
  for (const KernelSpec& spec : all) {
    const auto no = family.check(spec);
    EXPECT_FALSE(no.has_value()) << no->ToString();
    EXPECT_EQ(family.launch(spec).threads, spec.warps * 32u);
    EXPECT_GE(spec.stages, 2);
    EXPECT_EQ(std::count(all.begin(), all.end(), spec), 1);
  }
  for (const CudaArch arch : {CudaArch{80, 0}, CudaArch{90, 0}, CudaArch{100, 'a'}}) {
    EXPECT_TRUE(families.Catalog(arch).empty()) << arch.ToString();
  }
  EXPECT_TRUE(GemmQwSpecsForWeight(DataType::kBF16, kHopper).empty());
}

// The copy engine traps where a box does not begin at a multiple of 16 bytes of a row.
TEST(GemmQwFamilyTest, KTilesBeginAtMultiplesOf16BytesOfTheirRowsButThoseOfQ6_K) {
  for (const BlockFormat& format : kFormats) {
    const TypeInfo& type = GetTypeInfo(format.type);
    const int bytes = cuda::GemmQwTileBytes(type.block_bytes, type.block_elements);
    EXPECT_EQ(GemmQwSpecsForWeight(format.type, kHopper).empty(),
              bytes % 16 != 0 && format.type != DataType::kQ6_K)
        << DataTypeName(format.type);
  }
  KernelSpec spec = GemmQwSpecsForWeight(DataType::kQ4_K, kHopper).front();
  spec.type_b = DataType::kQ3_K;
  const auto no = GemmQwFamily().check(spec);
  ASSERT_TRUE(no.has_value());
  EXPECT_EQ(no->ToString(),
            "type: type_b = q3_k, 256 values of 110 bytes, needs a multiple of 16 bytes, or q6_k");
}

TEST(GemmQwFamilyTest, EveryBoxHasItsKTileAndEndsWithItsRow) {
  for (const BlockFormat& format : kFormats) {
    SCOPED_TRACE(DataTypeName(format.type));
    const TypeInfo& type = GetTypeInfo(format.type);
    const int tile = cuda::GemmQwTileBytes(type.block_bytes, type.block_elements);
    const int line = cuda::GemmQwLineBytes(type.block_bytes, type.block_elements);
    EXPECT_EQ(line % 16, 0);
    EXPECT_TRUE(tile % 16 == 0 || line / 16 % 2 == 1) << "rows beside each other meet in banks";
    for (const int k_tiles : {1, 2, 3, 8, 9, 56}) {
      for (int i = 0; i < k_tiles; ++i) {
        const int begin = cuda::GemmQwBoxBegin(tile, line, i, k_tiles), end = begin + line;
        EXPECT_EQ(begin % 16, 0);
        EXPECT_GE(begin, 0);
        EXPECT_LE(begin, i * tile);
        EXPECT_GE(end, (i + 1) * tile);
        const int row = (k_tiles * tile + 15) / 16 * 16;
        EXPECT_LE(end, std::max(row, line));
      }
    }
  }
}

TEST(GemmQwFamilyTest, ASpecThatNoKernelHasIsRefusedWithItsField) {
  const KernelSpec good = GemmQwSpecsForWeight(DataType::kQ8_0, kHopper).front();
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = GemmQwFamily().check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(word));
  };
  refused([](KernelSpec& s) { s.arch = {90, 0}; }, "sm_90a");
  refused([](KernelSpec& s) { s.type_a = DataType::kF32; }, "type_a");
  refused([](KernelSpec& s) { s.type_b = DataType::kBF16; }, "type_b");
  refused([](KernelSpec& s) { s.type_c = DataType::kF32; }, "type_c");
  refused([](KernelSpec& s) { s.type_d = DataType::kF16; }, "type_d");
  refused([](KernelSpec& s) { s.tile_m = 8; }, "tile_m");
  refused([](KernelSpec& s) { s.tile_n = 96; }, "tile_n");
  refused([](KernelSpec& s) { s.tile_k = 128; }, "tile_k");
  refused([](KernelSpec& s) { s.stages = 1; }, "stages");
  refused([](KernelSpec& s) { s.warps = 4; }, "warps");
  refused([](KernelSpec& s) { s.params[0] = 3; }, "param0");
  refused([](KernelSpec& s) { s.params[1] = 3; }, "param1");
  refused([](KernelSpec& s) { s.params[2] = 1; }, "param2");
  refused([](KernelSpec& s) { s.params[0] = 4, s.warps = 36; }, "at most 32");
  refused([](KernelSpec& s) { s.tile_m = 64, s.stages = 8; }, "shared memory");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kNone; }, "epilogue");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kSwiGlu; }, "type_c");
  refused([](KernelSpec& s) { s.order_b = Order::kRowMajor; }, "order");
}

/// Of the first kernel for q8_0.
struct Refusals : test::LaunchCase {
  Refusals() : LaunchCase(GemmQwSpecsForWeight(DataType::kQ8_0, kHopper).front()) {}
  template <class Change>
  std::string After(Change change) const {
    return test::RefusalAfter(*this, change, [](const Refusals& r) {
      return GemmQwLaunch(r.spec, r.args, r.device, r.workspace);
    });
  }
  DeviceSpec device = DeviceOf(132);
  Workspace workspace;
};

TEST(GemmQwLaunchTest, RefusesWhatTheKernelCannotRead) {
  const Refusals good;
  EXPECT_EQ(good.After([](Refusals&) {}), "");
  const auto refused = [&](auto change, const char* words) {
    EXPECT_THAT(good.After(change), testing::HasSubstr(words));
  };
  refused([](Refusals& r) { r.args.b = Refusals::memory + 8; }, "a multiple of 16 bytes");
  refused([](Refusals& r) { r.args.b_layout.ld = 288; }, "B: lines of 306 bytes");
  refused([](Refusals& r) { r.args.a = Refusals::memory + 8; }, "rows aligned to 16 bytes");
  refused([](Refusals& r) { r.args.a_layout.ld = 260; }, "rows aligned to 16 bytes");
  refused([](Refusals& r) { r.args.a_layout.cols = r.args.b_layout.rows = 255; }, "k = 255");
  refused([](Refusals& r) { r.args.b_layout.type = DataType::kQ4_K; }, "B q4_k, needs q8_0");
  refused([](Refusals& r) { r.spec.family = "gemm_q"; }, "a kernel of gemm_q");
  refused(
      [](Refusals& r) {
        // 32 k-tiles in two output tiles, for 132 CTAs.
        r.args.a_layout.cols = r.args.a_layout.ld = r.args.b_layout.rows = r.args.b_layout.ld =
            4096;
        r.args.b_layout.cols = r.args.d_layout.cols = r.args.d_layout.ld = 2 * r.spec.tile_n;
      },
      "a workspace of 0 bytes of partials");
}

TEST(GemmQwLaunchTest, CtasAreAsManyAsRunAtOnce) {
  Refusals r;
  r.args.a_layout.rows = r.args.d_layout.rows = r.spec.tile_m + 1;
  r.args.b_layout.cols = r.args.d_layout.cols = r.args.d_layout.ld = 66 * r.spec.tile_n;
  const cuda::LaunchResult launch = GemmQwLaunch(r.spec, r.args, r.device, r.workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{132, 1, 1}));
  EXPECT_EQ(launch->block, (std::array<std::uint32_t, 3>{32u * r.spec.warps, 1, 1}));
  EXPECT_EQ(launch->dynamic_smem_bytes, GemmQwFamily().launch(r.spec).dynamic_smem_bytes);
  EXPECT_EQ(launch->workspace, cuda::LaunchWorkspace{}) << "no tile is shared";
  ASSERT_EQ(launch->maps().size(), 1u);
  const cuda::TensorMapDesc& map = launch->maps()[0].desc;
  EXPECT_FALSE(map.swizzled);
  EXPECT_EQ(map.dims[0], 136u);
  EXPECT_EQ(map.box[0], 136u);
  EXPECT_EQ(map.box[1], r.spec.tile_n);
  EXPECT_EQ(map.strides[0], 272u);
  EXPECT_EQ(map.type, DataType::kBF16);
  r.args.b_layout.cols = r.args.d_layout.cols = r.args.d_layout.ld = 3;
  const cuda::LaunchResult few = GemmQwLaunch(r.spec, r.args, r.device, r.workspace);
  ASSERT_TRUE(few) << few.error().ToString();
  EXPECT_EQ(few->grid[0], 2u) << "one for each k-tile";
}

TEST(GemmQwLaunchTest, BoxesOfQ6_KAreWiderThanAKTile) {
  const KernelSpec spec = GemmQwSpecsForWeight(DataType::kQ6_K, kHopper).front();
  const test::BlockProduct product(DataType::kQ6_K, DataType::kBF16, {.m = 3, .n = 40, .k = 2048});
  const auto launch = GemmQwLaunch(spec, product.args, DeviceOf(1), {});
  ASSERT_TRUE(launch) << launch.error().ToString();
  const cuda::TensorMapDesc& map = launch->maps()[0].desc;
  EXPECT_EQ(map.dims[0], 840u) << "pairs of bytes of a row";
  EXPECT_EQ(map.strides[0], 1680u);
  EXPECT_EQ(map.box[0], 120u);
  // Rows that are no multiples of 16 bytes.
  const test::BlockProduct odd(DataType::kQ6_K, DataType::kBF16, {.m = 3, .n = 40, .k = 768});
  const auto no = GemmQwLaunch(spec, odd.args, DeviceOf(1), {});
  ASSERT_FALSE(no);
  EXPECT_THAT(no.error().ToString(), testing::HasSubstr("B: lines of 630 bytes"));
}

// Every unit has one owner, in order, and runs differ by one k-tile at most.
TEST(GemmQwLaunchTest, RunsDivideTheWorkEvenly) {
  for (const long long units : {5LL, 132LL, 1024LL, 32064LL}) {
    for (const int ctas : {1, 3, 5}) {
      long long unit = 0;
      for (int cta = 0; cta < ctas; ++cta) {
        const long long begin = cuda::GemmQwBegin(units, cta, ctas);
        const long long end = cuda::GemmQwBegin(units, cta + 1, ctas);
        EXPECT_EQ(begin, unit);
        EXPECT_LE(end - begin, units / ctas + 1);
        EXPECT_GE(end - begin, units / ctas);
        for (; unit < end; ++unit) ASSERT_EQ(cuda::GemmQwOwner(units, unit, ctas), cta);
      }
      EXPECT_EQ(unit, units);
    }
  }
}

}  // namespace
}  // namespace tilewright
