#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After it: the kernels use its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/test_util.h"
#include "device/cuda/block_types.h"
#include "ops/gemm/cuda/gemm_q/block_product.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemm_q/gemm_q_kernel.cuh"
#include "ops/gemm/cuda/gemm_q/gemm_q_launch.h"
#include "ops/gemm/cuda/launch_case.h"

// The source of the kernels, run on the CPU as GemmQLaunch launches them, against float64.

namespace tilewright {
namespace {

using test::DeviceOf;
using tw::Type;
constexpr CudaArch kHopper{90, 'a'};
constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }

/// A device with so many multiprocessors: their number decides how often k is split.
struct Problem {
  int m, n, k;
  int pad_w = 0;    ///< values between rows of W, whole blocks
  int shift_w = 0;  ///< bytes that W starts behind a multiple of 16
  float alpha = 1, beta = 0;
  int sms = 1;
  int splits = 1;  ///< that this many multiprocessors ask for
};

/// `kY`: the type of the result and the addend.
template <Type kW, int kTileM, int kTileN, int kWarps, int kParts, int kStages,
          Type kY = Type::kF32, bool kGated = false>
void ExpectProduct(const Problem& q) {
  SCOPED_TRACE(testing::Message() << "m " << q.m << " n " << q.n << " k " << q.k << " tile "
                                  << kTileM << "x" << kTileN << " parts " << kParts << " shift "
                                  << q.shift_w << " pad " << q.pad_w);
  test::BlockProduct product(DataTypeOf(kW), DataTypeOf(kY),
                             {.m = q.m,
                              .n = q.n,
                              .k = q.k,
                              .pad_w = q.pad_w,
                              .shift_w = q.shift_w,
                              .alpha = q.alpha,
                              .beta = q.beta,
                              .gated = kGated});
  // Some of these have fewer warps than the family ships, which is quicker to emulate.
  KernelSpec spec = product.SpecOf(kGemmQ);
  spec.stages = kStages;
  spec.tile_m = kTileM;
  spec.tile_n = kTileN;
  spec.tile_k = cuda::kGemmQTileK;
  spec.warps = kWarps;
  spec.params = {kParts, 1, 0, 0};
  const std::optional<Rejection> no = GemmQFamily().check(spec);
  ASSERT_FALSE(no) << no->ToString();

  const DeviceSpec device = DeviceOf(q.sms);
  const GemmShape shape{.m = q.m, .n = q.n, .k = q.k};
  ASSERT_EQ(GemmQSplits(spec, shape, device), q.splits);
  const WorkspaceSize size = GemmQWorkspace(spec, shape, device);
  EXPECT_EQ(size.partials != 0, q.splits > 1);
  test::GuardedWorkspace memory(size);
  const cuda::LaunchResult launch = GemmQLaunch(spec, product.args, device, memory.workspace());
  ASSERT_TRUE(launch) << launch.error().ToString();
  std::tie(tw::emulation::readable_begin, tw::emulation::readable_end) = product.ReadableW();
  std::tie(tw::emulation::other_readable_begin, tw::emulation::other_readable_end) =
      product.ReadableX();
  const bool ran =
      tw::emulation::RunLaunch<tw::GemmQParams>(*launch, kWarps * 32, [](const tw::GemmQParams& p) {
        constexpr auto kEpilogue = kGated ? tw::Epilogue::kSwiGlu : tw::Epilogue::kAdd;
        tw::GemmQ<kW, kGated ? Type::kNone : kY, kY, kEpilogue, kTileM, kTileN, kWarps, kParts,
                  kStages>(p, tw::emulation::smem);
      });
  tw::emulation::readable_begin = nullptr;
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access, or a read outside of x and W";
  memory.ExpectIntact();
  product.Expect();
}

/// Tiles of every number of rows, warps that share rows and that do not, and edges of all kinds.
template <Type kType>
void ExpectBlocks(std::initializer_list<int> ks) {
  for (const int k : ks) {
    ExpectProduct<kType, 8, 32, 4, 2, 2>({.m = 5, .n = 35, .k = k});
    ExpectProduct<kType, 16, 64, 4, 4, 3>({.m = 19, .n = 7, .k = k});
    ExpectProduct<kType, 32, 64, 4, 1, 2>({.m = 33, .n = 64, .k = k});
    ExpectProduct<kType, 64, 32, 4, 4, 2>({.m = 50, .n = 33, .k = k});
  }
}

template <Type kType>
void ExpectFewBlocks() {
  constexpr int kUnit = test::RowUnit(tw::Codes<kType>::kBlock, tw::Codes<kType>::kBytes);
  for (const int k : {kUnit, 768, 1024 + kUnit}) {
    ExpectProduct<kType, 8, 32, 4, 2, 2>({.m = 5, .n = 35, .k = k});
    ExpectProduct<kType, 32, 64, 4, 4, 2>({.m = 33, .n = 64, .k = k});
  }
}

TEST(GemmQTest, BlocksOf32OfEveryNumberOfBlocks) {
  ExpectBlocks<Type::kQ4_0>({32, 224, 256, 288, 1056});
  ExpectBlocks<Type::kQ4_1>({32, 224, 256, 288, 1056});
  ExpectBlocks<Type::kQ8_0>({32, 224, 256, 288, 1056});
}

TEST(GemmQTest, BlocksOfCodesOfEveryNumberOfBlocks) {
  cuda::ForEachBlockOfCodes([]<Type kType>() { ExpectFewBlocks<kType>(); });
}

TEST(GemmQTest, BlocksOf256OfEveryNumberOfBlocks) {
  ExpectBlocks<Type::kQ4_K>({256, 512, 1280});
  ExpectBlocks<Type::kQ6_K>({256, 512, 1280});
}

TEST(GemmQTest, ShapesThatAreShipped) {
  ExpectProduct<Type::kQ8_0, 8, 64, 8, 4, 4, Type::kBF16>({.m = 8, .n = 70, .k = 320});
  ExpectProduct<Type::kQ4_K, 32, 64, 8, 4, 3, Type::kBF16>({.m = 32, .n = 70, .k = 512});
  ExpectProduct<Type::kQ8_0, 32, 128, 16, 4, 4, Type::kBF16>({.m = 31, .n = 130, .k = 288});
  ExpectProduct<Type::kQ8_0, 32, 256, 16, 2, 2, Type::kBF16>({.m = 33, .n = 300, .k = 800});
  ExpectProduct<Type::kQ8_0, 32, 224, 14, 2, 2, Type::kF32, true>({.m = 32, .n = 256, .k = 544});
  ExpectProduct<Type::kQ6_K, 64, 128, 16, 4, 2, Type::kBF16>({.m = 64, .n = 128, .k = 256});
}

TEST(GemmQTest, TheAddendAndAlphaAreApplied) {
  ExpectProduct<Type::kQ8_0, 16, 32, 4, 2, 2>(
      {.m = 18, .n = 37, .k = 320, .alpha = -0.5f, .beta = 2});
  ExpectProduct<Type::kQ4_1, 8, 32, 4, 2, 2, Type::kBF16>(
      {.m = 8, .n = 32, .k = 288, .alpha = 3, .beta = 1});
}

TEST(GemmQTest, GateAndUpAreOneProduct) {
  ExpectProduct<Type::kQ8_0, 8, 64, 4, 4, 2, Type::kBF16, true>({.m = 5, .n = 96, .k = 288});
  ExpectProduct<Type::kQ4_K, 32, 64, 4, 2, 2, Type::kF32, true>(
      {.m = 33, .n = 160, .k = 512, .alpha = -1.5f});
  ExpectProduct<Type::kQ6_K, 16, 32, 4, 2, 2, Type::kBF16, true>(
      {.m = 20, .n = 64, .k = 2048, .sms = 8, .splits = 2});
}

TEST(GemmQTest, CtasThatSharePartsOfKLeaveNothingOut) {
  ExpectProduct<Type::kQ8_0, 16, 32, 4, 2, 2>(
      {.m = 20, .n = 40, .k = 3232, .alpha = 2, .beta = 1, .sms = 8, .splits = 2});
  ExpectProduct<Type::kQ4_K, 8, 32, 4, 4, 3>({.m = 8, .n = 31, .k = 3584, .sms = 5, .splits = 5});
  ExpectProduct<Type::kQ6_K, 8, 32, 4, 4, 2, Type::kBF16>(
      {.m = 3, .n = 64, .k = 2048, .sms = 6, .splits = 3});
}

// Copies are of 16 aligned bytes wherever rows begin, and read nothing outside of the matrix.
template <Type kType>
void ExpectShiftedRows(int alignment, int k) {
  const int unit = test::RowUnit(GetTypeInfo(DataTypeOf(kType)));
  for (int shift = 0; shift < 16; shift += alignment) {
    for (const int pad : {0, 1, 3}) {  // blocks: rows at other residues of 16 bytes
      ExpectProduct<kType, 8, 32, 4, 2, 2>(
          {.m = 2, .n = 34, .k = k, .pad_w = pad * unit, .shift_w = shift});
    }
  }
}

TEST(GemmQTest, BlocksAtEveryAddressThatTheirFormatAllows) {
  ExpectShiftedRows<Type::kQ4_0>(2, 288);
  ExpectShiftedRows<Type::kQ4_1>(4, 288);
  ExpectShiftedRows<Type::kQ8_0>(2, 544);
  ExpectShiftedRows<Type::kQ6_K>(2, 512);
  ExpectShiftedRows<Type::kQ4_K>(16, 512);
  cuda::ForEachBlockOfCodes([]<Type kType>() {
    ExpectShiftedRows<kType>(tw::GemvRowAlignment(tw::Codes<kType>::kBytes),
                             512 + test::RowUnit(GetTypeInfo(DataTypeOf(kType))));
  });
}

TEST(GemmQFamilyTest, EverySpecOfTheCatalogPassesItsCheckOnce) {
  KernelFamilies families;
  ASSERT_TRUE(AddGemmQFamily(families));
  EXPECT_FALSE(AddGemmQFamily(families)) << "the name is taken";
  const KernelFamily& family = *families.Find(FamilyName(kGemmQ));
  for (const CudaArch arch :
       {CudaArch{80, 0}, CudaArch{89, 0}, kHopper, CudaArch{100, 'a'}, CudaArch{120, 0}}) {
    const std::vector<KernelSpec> all = families.Catalog(arch);
    ASSERT_GE(all.size(), 25u) << arch.ToString();
    for (const KernelSpec& spec : all) {
      const auto no = family.check(spec);
      EXPECT_FALSE(no.has_value()) << no->ToString();
      EXPECT_EQ(family.launch(spec).threads, spec.warps * 32u);
      EXPECT_GE(family.limits(spec).max_registers, 128u);
      EXPECT_EQ(std::count(all.begin(), all.end(), spec), 1);
    }
  }
  EXPECT_TRUE(families.Catalog(CudaArch{75, 0}).empty());
  EXPECT_TRUE(GemmQSpecsForWeight(DataType::kBF16, kHopper).empty());
}

TEST(GemmQFamilyTest, ASpecThatNoKernelHasIsRefusedWithItsField) {
  const KernelSpec good = GemmQSpecsForWeight(DataType::kQ4_K, kHopper).front();
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = GemmQFamily().check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(word));
  };
  refused([](KernelSpec& s) { s.arch = {75, 0}; }, "sm_75");
  refused([](KernelSpec& s) { s.type_a = DataType::kF32; }, "type_a");
  refused([](KernelSpec& s) { s.type_b = DataType::kBF16; }, "type_b");
  refused([](KernelSpec& s) { s.type_c = DataType::kF32; }, "type_c");
  refused([](KernelSpec& s) { s.type_d = DataType::kF16; }, "type_d");
  refused([](KernelSpec& s) { s.tile_m = 24; }, "tile_m");
  refused([](KernelSpec& s) { s.tile_n = 48; }, "tile_n");
  refused([](KernelSpec& s) { s.tile_k = 128; }, "tile_k");
  refused([](KernelSpec& s) { s.stages = 1; }, "stages");
  refused([](KernelSpec& s) { s.warps = 5; }, "warps");
  refused([](KernelSpec& s) { s.params[0] = 8; }, "param0");
  refused([](KernelSpec& s) { s.params[1] = 5; }, "param1");
  refused([](KernelSpec& s) { s.params[2] = 1; }, "param2");
  refused([](KernelSpec& s) { s.tile_n = 32, s.params[0] = 1; }, "16 to 64 rows");
  refused([](KernelSpec& s) { s.tile_m = 64, s.params[0] = 4, s.tile_n = 128; }, "in a thread");
  refused([](KernelSpec& s) { s.tile_m = 64, s.tile_n = 128, s.warps = 16, s.stages = 8; },
          "shared memory");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kNone; }, "epilogue");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kSwiGlu; }, "type_c");
  refused([](KernelSpec& s) { s.order_b = Order::kRowMajor; }, "order");
}

/// Of the first kernel for q8_0.
struct Refusals : test::LaunchCase {
  Refusals() : LaunchCase(GemmQSpecsForWeight(DataType::kQ8_0, kHopper).front()) {}
  template <class Change>
  std::string After(Change change) const {
    return test::RefusalAfter(*this, change, [](const Refusals& r) {
      return GemmQLaunch(r.spec, r.args, r.device, r.workspace);
    });
  }
  DeviceSpec device = DeviceOf(132);
  Workspace workspace;
};

TEST(GemmQLaunchTest, RefusesWhatTheKernelCannotRead) {
  const Refusals good;
  EXPECT_EQ(good.After([](Refusals&) {}), "");
  const auto refused = [&](auto change, const char* words) {
    EXPECT_THAT(good.After(change), testing::HasSubstr(words));
  };
  refused([](Refusals& r) { r.args.b = Refusals::memory + 1; }, "multiples of 2");
  refused([](Refusals& r) { r.args.a = Refusals::memory + 8; }, "rows aligned to 16 bytes");
  refused([](Refusals& r) { r.args.a_layout.ld = 260; }, "rows aligned to 16 bytes");
  refused([](Refusals& r) { r.args.a_layout.cols = r.args.b_layout.rows = 255; }, "k = 255");
  refused([](Refusals& r) { r.args.b_layout.ld = 272; }, "a multiple of 32 for q8_0");
  refused([](Refusals& r) { r.args.b_layout.type = DataType::kQ4_K; }, "B q4_k, needs q8_0");
  refused([](Refusals& r) { r.spec.family = "gemv_q"; }, "a kernel of gemv_q");
  refused(
      [](Refusals& r) {
        r.args.a_layout.cols = r.args.a_layout.ld = r.args.b_layout.rows = r.args.b_layout.ld =
            8192;
      },
      "a workspace of 0 bytes of partials");
}

TEST(GemmQLaunchTest, GridCoversTheTilesAndTheirSplits) {
  Refusals r;
  r.args.a_layout.rows = r.args.d_layout.rows = 3 * r.spec.tile_m + 1;
  r.args.b_layout.cols = r.args.d_layout.cols = r.args.d_layout.ld = 400 * r.spec.tile_n;
  const cuda::LaunchResult launch = GemmQLaunch(r.spec, r.args, r.device, r.workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{1600, 1, 1}));
  EXPECT_EQ(launch->block, (std::array<std::uint32_t, 3>{32u * r.spec.warps, 1, 1}));
  EXPECT_EQ(launch->dynamic_smem_bytes, GemmQFamily().launch(r.spec).dynamic_smem_bytes);
  const auto params = launch->params.As<cuda::GemmQParams>();
  ASSERT_TRUE(params);
  EXPECT_EQ(params->w_row_bytes, 272);
  EXPECT_EQ(params->splits, 1);
}

// Few tiles of a long k are split; never into more parts than there are k-tiles, nor for a device
// that is full without.
TEST(GemmQLaunchTest, SplitsFillTheDevice) {
  const Refusals r;
  const auto splits = [&](int m, int n, int k) {
    return GemmQSplits(r.spec, {.m = m, .n = n, .k = k}, r.device);
  };
  EXPECT_GE(splits(8, 4096, 4096), 3);
  EXPECT_GE(splits(8, 4096, 14336), 3);
  EXPECT_EQ(splits(8, 64 * 264, 4096), 1);
  EXPECT_EQ(splits(8, 128256, 4096), 1);
  EXPECT_EQ(splits(8, 64, 256), 1);
  EXPECT_LE(splits(8, 64, 1024), 4);
}

}  // namespace
}  // namespace tilewright
