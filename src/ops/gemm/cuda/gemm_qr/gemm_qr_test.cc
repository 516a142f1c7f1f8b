#include "device/cuda/kernels/hopper_emulation.h"
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
#include "ops/gemm/cuda/gemm_qr/families.h"
#include "ops/gemm/cuda/gemm_qr/gemm_qr_kernel.cuh"
#include "ops/gemm/cuda/gemm_qr/gemm_qr_launch.h"
#include "ops/gemm/cuda/gemm_qw/rounded_weights.h"
#include "ops/gemm/cuda/launch_case.h"

// The source of the kernels, run on the CPU as GemmQrLaunch launches them, against float64.

namespace tilewright {
namespace {

using test::DeviceOf;
using test::PaddedShape;
using tw::Type;
constexpr CudaArch kHopper{90, 'a'};
constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }

/// `sms`: multiprocessors. Returns y.
template <Type kW, int kTileM, int kTileN, int kStages, Type kY = Type::kF32, bool kGated = false>
std::vector<double> ExpectProduct(test::BlockShape shape, int sms = 1) {
  SCOPED_TRACE(testing::Message() << "m " << shape.m << " n " << shape.n << " k " << shape.k
                                  << " tile " << kTileM << "x" << kTileN << " pad " << shape.pad_w
                                  << " on " << sms);
  shape.gated = kGated;
  test::BlockProduct product(DataTypeOf(kW), DataTypeOf(kY), shape);
  KernelSpec spec = product.SpecOf(kGemmQr);
  spec.stages = kStages;
  spec.tile_m = kTileM;
  spec.tile_n = kTileN;
  spec.tile_k = cuda::kGemmQTileK;
  spec.warps = cuda::kGemmQrWarps + cuda::kGemmQrStoringWarps;
  const std::optional<Rejection> no = GemmQrFamily().check(spec);
  EXPECT_FALSE(no) << no->ToString();
  if (no) return {};

  const DeviceSpec device = DeviceOf(sms);
  const WorkspaceSize size =
      GemmQrWorkspace(spec, {.m = shape.m, .n = shape.n, .k = shape.k}, device);
  test::GuardedWorkspace memory(size);
  cuda::LaunchResult launch = GemmQrLaunch(spec, product.args, device, memory.workspace());
  EXPECT_TRUE(launch) << launch.error().ToString();
  if (!launch) return {};
  EXPECT_TRUE(cuda::EncodeMaps(*launch, &tw::emulation::EncodeMap));
  std::tie(tw::emulation::readable_begin, tw::emulation::readable_end) = product.ReadableX();
  tw::emulation::barriers.clear();
  constexpr unsigned int kThreads = 32 * (cuda::kGemmQrWarps + cuda::kGemmQrStoringWarps);
  // Warps finish at different times: what RunLaunch returns does not matter here.
  tw::emulation::RunLaunch<tw::GemmQrParams>(*launch, kThreads, [](const tw::GemmQrParams& p) {
    constexpr auto kEpilogue = kGated ? tw::Epilogue::kSwiGlu : tw::Epilogue::kAdd;
    tw::GemmQr<kW, kGated ? Type::kNone : kY, kY, kEpilogue, kTileM, kTileN, kStages>::Run(
        p, tw::emulation::OwnSmem());
  });
  tw::emulation::readable_begin = nullptr;
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access, a surplus arrival or a hang";
  memory.ExpectIntact();
  product.RoundWeights(&test::RoundAsGemmQw<float>);
  product.Expect();
  std::vector<double> bits = product.Result();
  std::replace_if(
      bits.begin(), bits.end(), [](double y) { return std::isnan(y); }, 0.0);  // padding
  return bits;
}

/// Whether the copy engine can bring k-tiles of it.
bool OfWhole16Bytes(DataType type) {
  const TypeInfo& info = GetTypeInfo(type);
  return cuda::kGemmQTileK / info.block_elements * info.block_bytes % 16 == 0;
}

/// Tiles of every size, and edges of all kinds.
template <Type kType>
void ExpectBlocks(std::initializer_list<int> ks) {
  for (const int k : ks) {
    ExpectProduct<kType, 8, 32, 3>(PaddedShape(DataTypeOf(kType), 5, 70, k));
    ExpectProduct<kType, 16, 32, 2>(PaddedShape(DataTypeOf(kType), 18, 100, k));
    ExpectProduct<kType, 16, 16, 4>(PaddedShape(DataTypeOf(kType), 16, 33, k));
    ExpectProduct<kType, 8, 16, 3>(PaddedShape(DataTypeOf(kType), 6, 40, k));
  }
}

TEST(GemmQrTest, BlocksOf32OfEveryNumberOfBlocks) {
  ExpectBlocks<Type::kQ4_0>({32, 224, 256, 288});
  ExpectBlocks<Type::kQ4_1>({32, 224, 256, 288});
  ExpectBlocks<Type::kQ8_0>({32, 224, 256, 288, 1056});
}

TEST(GemmQrTest, BlocksOfCodesOfEveryNumberOfBlocks) {
  cuda::ForEachBlockOfCodes([]<Type kType>() {
    if (!OfWhole16Bytes(DataTypeOf(kType))) return;
    const int block = tw::Codes<kType>::kBlock;
    ExpectProduct<kType, 16, 32, 2>(PaddedShape(DataTypeOf(kType), 5, 70, 512 + block));
  });
}

TEST(GemmQrTest, BlocksOf256OfEveryNumberOfBlocks) {
  ExpectBlocks<Type::kQ4_K>({256, 768});
  ExpectBlocks<Type::kQ5_K>({256, 768});
  ExpectBlocks<Type::kQ6_K>({256, 768, 2048});
}

// 210 bytes behind each other begin at every even place between two multiples of 16; the last box ends with the row.
TEST(GemmQrTest, KTilesThatBeginAnywhere) {
  ExpectProduct<Type::kQ6_K, 16, 32, 2>({.m = 16, .n = 70, .k = 4096}, 4);
  ExpectProduct<Type::kQ6_K, 8, 32, 3>(PaddedShape(DataType::kQ6_K, 8, 64, 2304), 5);
}

TEST(GemmQrTest, TheAddendAndAlphaAreApplied) {
  ExpectProduct<Type::kQ8_0, 16, 32, 2>({.m = 18, .n = 70, .k = 512, .alpha = -0.5f, .beta = 2});
  ExpectProduct<Type::kQ4_1, 16, 32, 2, Type::kBF16>(
      {.m = 30, .n = 64, .k = 256, .alpha = 3, .beta = 1});
}

TEST(GemmQrTest, GateAndUpAreOneProduct) {
  ExpectProduct<Type::kQ8_0, 16, 32, 2, Type::kBF16, true>({.m = 31, .n = 96, .k = 256});
  ExpectProduct<Type::kQ4_K, 8, 32, 4, Type::kF32, true>(
      {.m = 33, .n = 160, .k = 512, .alpha = -1.5f});
  ExpectProduct<Type::kQ8_0, 16, 32, 2, Type::kBF16, true>({.m = 16, .n = 96, .k = 2304}, 4);
}

// Scales from the least of f16 to 1 beside each other, and values that cancel their offsets.
TEST(GemmQrTest, BlocksOfRandomBits) {
  cuda::ForEachBlockOfCodes([]<Type kType>() {
    if (!OfWhole16Bytes(DataTypeOf(kType))) return;
    test::BlockShape shape = PaddedShape(DataTypeOf(kType), 20, 100, 2048);
    shape.random_blocks = true;
    ExpectProduct<kType, 16, 32, 2>(shape);
  });
  test::BlockShape shape{.m = 20, .n = 100, .k = 2048};
  shape.random_blocks = true;
  ExpectProduct<Type::kQ6_K, 16, 32, 2>(shape);
}

// Weights and activations beyond f16 on either side, and one of them beside the other as usual; alpha makes
// the product one of ordinary size.
TEST(GemmQrTest, WhatF16DoesNotHoldIsMultipliedAllTheSame) {
  for (const auto& [x_scale, w_scale] : std::initializer_list<std::pair<double, double>>{
           {1e6, 0.05}, {1e-9, 0.05}, {1, 1e4}, {1, 1e-5}, {1e20, 1e4}, {1e-20, 1e-5}}) {
    SCOPED_TRACE(testing::Message() << x_scale << " times " << w_scale);
    const auto alpha = static_cast<float>(1 / (x_scale * w_scale));
    ExpectProduct<Type::kQ8_0, 16, 32, 2>(
        {.m = 20, .n = 70, .k = 512, .alpha = alpha, .x_scale = x_scale, .w_scale = w_scale}, 3);
    ExpectProduct<Type::kQ4_K, 16, 32, 4>(
        {.m = 18, .n = 70, .k = 512, .alpha = alpha, .x_scale = x_scale, .w_scale = w_scale});
    ExpectProduct<Type::kQ5_1, 8, 16, 2>(
        {.m = 50, .n = 64, .k = 512, .alpha = alpha, .x_scale = x_scale, .w_scale = w_scale});
    ExpectProduct<Type::kQ6_K, 16, 32, 3>(
        {.m = 20, .n = 70, .k = 2048, .alpha = alpha, .x_scale = x_scale, .w_scale = w_scale});
  }
}

// More k-tiles than a CTA has warps, as many multiprocessors as slices and more; two runs give the same bits.
TEST(GemmQrTest, SlicesOfKAreAddedInTheirOrder) {
  for (const int sms : {1, 2, 3, 5, 8, 12}) {
    const auto once = [sms] {
      test::BlockShape shape = PaddedShape(DataTypeOf(Type::kQ8_0), 20, 130, 2080);
      shape.alpha = 2;
      shape.beta = 1;
      return ExpectProduct<Type::kQ8_0, 16, 32, 2>(shape, sms);
    };
    EXPECT_EQ(once(), once());
    ExpectProduct<Type::kQ4_K, 8, 32, 3, Type::kBF16>({.m = 9, .n = 256, .k = 5120}, sms);
    const auto of_q6_k = [sms] {
      return ExpectProduct<Type::kQ6_K, 8, 32, 3>({.m = 9, .n = 100, .k = 4096, .beta = 1}, sms);
    };
    EXPECT_EQ(of_q6_k(), of_q6_k());
  }
  ExpectProduct<Type::kQ8_0, 16, 32, 2, Type::kBF16, true>({.m = 32, .n = 96, .k = 4608}, 5);
}

// The shapes of the catalog, with several tiles a CTA.
TEST(GemmQrTest, ShapesThatAreShipped) {
  ExpectProduct<Type::kQ8_0, 16, 32, 2, Type::kBF16>({.m = 16, .n = 256, .k = 1024}, 3);
  ExpectProduct<Type::kQ8_0, 8, 32, 3, Type::kBF16>({.m = 8, .n = 400, .k = 2304}, 4);
  ExpectProduct<Type::kQ4_K, 16, 32, 5, Type::kF32>({.m = 14, .n = 260, .k = 768}, 2);
  ExpectProduct<Type::kQ6_K, 16, 32, 3, Type::kBF16>({.m = 14, .n = 260, .k = 2048}, 2);
  ExpectProduct<Type::kQ6_K, 8, 32, 3, Type::kBF16, true>({.m = 8, .n = 96, .k = 2048}, 2);
}

TEST(GemmQrFamilyTest, EverySpecOfTheCatalogPassesItsCheckOnce) {
  KernelFamilies families;
  ASSERT_TRUE(AddGemmQrFamily(families));
  EXPECT_FALSE(AddGemmQrFamily(families)) << "the name is taken";
  const KernelFamily& family = *families.Find(FamilyName(kGemmQr));
  const std::vector<KernelSpec> all = families.Catalog(kHopper);
  ASSERT_EQ(all.size(), 18u);
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
  EXPECT_TRUE(GemmQrSpecsForWeight(DataType::kBF16, kHopper).empty());
  EXPECT_TRUE(GemmQrSpecsForWeight(DataType::kQ8_0, kHopper).empty()) << "gemm_q is as fast";
}

TEST(GemmQrFamilyTest, ASpecThatNoKernelHasIsRefusedWithItsField) {
  const KernelSpec good = GemmQrSpecsForWeight(DataType::kQ4_K, kHopper).front();
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = GemmQrFamily().check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(word));
  };
  refused([](KernelSpec& s) { s.arch = {90, 0}; }, "sm_90a");
  refused([](KernelSpec& s) { s.type_a = DataType::kF32; }, "type_a");
  refused([](KernelSpec& s) { s.type_b = DataType::kBF16; }, "type_b");
  refused([](KernelSpec& s) { s.type_d = DataType::kF16; }, "type_d");
  refused([](KernelSpec& s) { s.tile_m = 32; }, "tile_m");
  refused([](KernelSpec& s) { s.tile_n = 64; }, "tile_n");
  refused([](KernelSpec& s) { s.tile_k = 128; }, "tile_k");
  refused([](KernelSpec& s) { s.stages = 1; }, "stages");
  refused([](KernelSpec& s) { s.stages = 7; }, "shared memory");
  refused([](KernelSpec& s) { s.type_b = DataType::kQ3_K; }, "a multiple of 16 bytes");
  refused([](KernelSpec& s) { s.warps = 8; }, "warps");
  refused([](KernelSpec& s) { s.params[0] = 1; }, "param0");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kNone; }, "epilogue");
  refused(
      [](KernelSpec& s) {
        s.epilogue = SpecEpilogue::kSwiGlu;
        s.type_c = DataType::kNone;
        s.tile_n = 16;
      },
      "tile_n = 16");
}

/// Of the first kernel for q4_k.
struct Refusals : test::LaunchCase {
  Refusals() : LaunchCase(GemmQrSpecsForWeight(DataType::kQ4_K, kHopper).front()) {}
  template <class Change>
  std::string After(Change change) const {
    return test::RefusalAfter(*this, change, [](const Refusals& r) {
      return GemmQrLaunch(r.spec, r.args, r.device, r.workspace);
    });
  }
  /// n columns of products of k values.
  void SetShape(int n, int k) {
    args.a_layout.cols = args.a_layout.ld = args.b_layout.rows = args.b_layout.ld = k;
    args.b_layout.cols = args.d_layout.cols = args.d_layout.ld = n;
  }
  DeviceSpec device = DeviceOf(132);
  Workspace workspace;
};

TEST(GemmQrLaunchTest, RefusesWhatTheKernelCannotRead) {
  const Refusals good;
  EXPECT_EQ(good.After([](Refusals&) {}), "");
  const auto refused = [&](auto change, const char* words) {
    EXPECT_THAT(good.After(change), testing::HasSubstr(words));
  };
  refused([](Refusals& r) { r.args.b = Refusals::memory + 8; }, "a multiple of 16 bytes");
  refused([](Refusals& r) { r.args.a = Refusals::memory + 8; }, "rows aligned to 16 bytes");
  refused([](Refusals& r) { r.args.a_layout.ld = 260; }, "rows aligned to 16 bytes");
  refused([](Refusals& r) { r.args.a_layout.cols = r.args.b_layout.rows = 128; }, "k = 128");
  refused([](Refusals& r) { r.args.b_layout.type = DataType::kQ8_0; }, "B q8_0, needs q4_k");
  refused([](Refusals& r) { r.spec.family = "gemm_qw"; }, "needs one of gemm_qr");
  refused([](Refusals& r) { r.SetShape(64, 4096); }, "a workspace of 0 bytes of partials");
}

TEST(GemmQrLaunchTest, SlicesFillTheMultiprocessors) {
  Refusals r;
  const auto grid = [&r](int n, int k) {
    r.SetShape(n, k);
    const GemmQrCut cut = GemmQrCutOf(r.spec, {.m = 1, .n = n, .k = k}, r.device);
    return std::pair(cut.slices, cut.groups);
  };
  EXPECT_EQ(grid(28672, 4096), std::pair(2, 66));
  EXPECT_EQ(grid(4096, 4096), std::pair(2, 66));
  EXPECT_EQ(grid(4096, 14336), std::pair(8, 16)) << "seven would leave tiles for an eighth round";
  EXPECT_EQ(grid(4096, 256), std::pair(1, 128)) << "no more CTAs than tiles";
  r.SetShape(4096, 1024);
  const cuda::LaunchResult launch = GemmQrLaunch(r.spec, r.args, r.device, r.workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{128, 1, 1}));
  EXPECT_EQ(launch->block, (std::array<std::uint32_t, 3>{384, 1, 1}));
  EXPECT_EQ(launch->workspace, cuda::LaunchWorkspace{}) << "no tile is shared";
  ASSERT_EQ(launch->maps().size(), 1u);
  EXPECT_EQ(launch->maps()[0].desc.box[0], 72u);
  EXPECT_EQ(launch->maps()[0].desc.box[1], 32u);
}

// Every k-tile is in one slice, and no slice has more than a CTA has warps.
TEST(GemmQrLaunchTest, SlicesDivideKEvenly) {
  for (const int k_tiles : {1, 8, 9, 16, 43, 56, 200}) {
    for (int slices = (k_tiles - 1) / cuda::kGemmQrWarps + 1; slices <= k_tiles; ++slices) {
      int k_tile = 0;
      for (int slice = 0; slice < slices; ++slice) {
        EXPECT_EQ(cuda::GemmQrBegin(k_tiles, slice, slices), k_tile);
        const int end = cuda::GemmQrBegin(k_tiles, slice + 1, slices);
        EXPECT_GE(end, k_tile + 1);
        EXPECT_LE(end, k_tile + cuda::kGemmQrWarps);
        k_tile = end;
      }
      EXPECT_EQ(k_tile, k_tiles);
    }
  }
}

}  // namespace
}  // namespace tilewright
