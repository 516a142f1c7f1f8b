#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After it: the kernels use its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "device/cuda/block_types.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/gemm/cuda/gemv/gemv_kernel.cuh"
#include "ops/gemm/cuda/gemv/gemv_launch.h"
#include "ops/gemm/cuda/gemv/gemv_q_kernel.cuh"
#include "ops/gemm/cuda/launch_case.h"

// The source of the kernels, run on the CPU as GemvLaunch launches them, against float64.

namespace tilewright {
namespace {

constexpr CudaArch kHopper{90, 'a'};

constexpr DataType DataTypeOf(tw::Type type) { return static_cast<DataType>(type); }
static_assert(DataTypeOf(tw::Type::kF32) == DataType::kF32 &&
              DataTypeOf(tw::Type::kBF16) == DataType::kBF16 &&
              DataTypeOf(tw::Type::kQ6_K) == DataType::kQ6_K &&
              DataTypeOf(tw::Type::kQ4_K) == DataType::kQ4_K);

std::vector<float> Decoded(DataType type, const void* data, std::size_t count) {
  std::vector<float> values(count);
  EXPECT_TRUE(DecodeRow(type, data, static_cast<std::int64_t>(count), values.data()));
  return values;
}

struct Problem {
  int m, n, k;
  int pad_x = 0;    ///< elements between rows of x
  int pad_w = 0;    ///< values between rows of W; blocks: whole ones
  int shift = 0;    ///< elements that x and plain W start off their alignment
  int shift_w = 0;  ///< bytes that W in blocks starts behind a multiple of 16
  float alpha = 1, beta = 0;
};

/// `kStages`: of the ring of blocks, or the reads in flight of plain weights.
template <tw::Type kX, tw::Type kW, int kTileM, int kTileN, int kWarps, int kSplit, int kStages,
          tw::Type kC = tw::Type::kNone>
void ExpectProduct(const Problem& q) {
  SCOPED_TRACE(testing::Message() << "m " << q.m << " n " << q.n << " k " << q.k << " tile "
                                  << kTileM << "x" << kTileN << " split " << kSplit);
  const DataType type_x = DataTypeOf(kX), type_w = DataTypeOf(kW);
  const auto bytes_x = static_cast<std::size_t>(GetTypeInfo(type_x).block_bytes);
  const std::size_t m = static_cast<std::size_t>(q.m), n = static_cast<std::size_t>(q.n),
                    k = static_cast<std::size_t>(q.k);
  const std::size_t ldx = k + static_cast<std::size_t>(q.pad_x);
  const std::size_t row_bytes = BytesOf(type_w, q.k + q.pad_w);
  const bool blocks = GetTypeInfo(type_w).block_quantised;
  const auto shift_w =
      static_cast<std::size_t>(blocks ? q.shift_w : q.shift * GetTypeInfo(type_w).block_bytes);

  test::GuardedBytes x(m * ldx * bytes_x, static_cast<std::size_t>(q.shift) * bytes_x);
  // Nothing belongs to W behind its last row.
  test::GuardedBytes w((n - 1) * row_bytes + BytesOf(type_w, q.k), shift_w);
  std::vector<float> xs, ws;
  for (std::size_t r = 0; r < m; ++r) {
    const std::vector<float> row = test::RandomFloats(k, 100 + r);
    auto* at = static_cast<unsigned char*>(x.data()) + r * ldx * bytes_x;
    ASSERT_TRUE(EncodeRow(type_x, row.data(), q.k, at));
    const std::vector<float> exact = Decoded(type_x, at, k);
    xs.insert(xs.end(), exact.begin(), exact.end());
  }
  for (std::size_t r = 0; r < n; ++r) {
    const std::vector<float> row = test::RandomFloats(k, 500 + r, 0.05);
    auto* at = static_cast<unsigned char*>(w.data()) + r * row_bytes;
    ASSERT_TRUE(EncodeRow(type_w, row.data(), q.k, at));
    const std::vector<float> exact = Decoded(type_w, at, k);
    ws.insert(ws.end(), exact.begin(), exact.end());
  }
  const std::size_t ldy = n + 3;
  test::Guarded<float> y(m * ldy);
  test::Guarded<float> c(test::RandomFloats(m * n, 9));

  // Some of these have fewer warps than the family ships, which is quicker to emulate.
  KernelSpec spec;
  spec.family = blocks ? "gemv_q" : "gemv_bf16";
  spec.arch = kHopper;
  spec.type_a = type_x;
  spec.type_b = type_w;
  spec.type_c = DataTypeOf(kC);
  spec.type_d = DataType::kF32;
  spec.order_a = Order::kRowMajor;
  spec.order_b = Order::kColMajor;
  spec.epilogue = kC == tw::Type::kNone ? SpecEpilogue::kNone : SpecEpilogue::kAdd;
  spec.stages = kStages;
  spec.tile_m = kTileM;
  spec.tile_n = kTileN;
  spec.warps = kWarps;
  spec.params = {kSplit, 1, 0, 0};
  GemmArgs args;
  args.alpha = q.alpha;
  args.beta = q.beta;
  args.a = x.data();
  args.b = w.data();
  args.c = c.data();
  args.d = y.data();
  args.a_layout = {.type = type_x, .rows = q.m, .cols = q.k, .ld = static_cast<std::int64_t>(ldx)};
  args.b_layout = {
      .type = type_w, .order = Order::kColMajor, .rows = q.k, .cols = q.n, .ld = q.k + q.pad_w};
  args.c_layout = {.type = DataType::kF32, .rows = q.m, .cols = q.n, .ld = q.n};
  args.d_layout = {
      .type = DataType::kF32, .rows = q.m, .cols = q.n, .ld = static_cast<std::int64_t>(ldy)};
  const cuda::LaunchResult launch = GemvLaunch(spec, args);
  ASSERT_TRUE(launch) << launch.error().ToString();
  tw::emulation::readable_begin = static_cast<const unsigned char*>(w.data());
  tw::emulation::readable_end = tw::emulation::readable_begin + w.size();
  const bool ran =
      tw::emulation::RunLaunch<tw::GemvParams>(*launch, kWarps * 32, [](const tw::GemvParams& p) {
        if constexpr (kW == tw::Type::kBF16 || kW == tw::Type::kF16 || kW == tw::Type::kF32) {
          tw::Gemv<kX, kW, kC, tw::Type::kF32, kTileM, kTileN, kWarps, kSplit, kStages>(p);
        } else {
          tw::GemvQ<kX, kW, kC, tw::Type::kF32, kTileM, kTileN, kWarps, kSplit, kStages>(
              p, static_cast<int>(blockIdx.y) * kTileM, tw::emulation::smem);
        }
      });
  tw::emulation::readable_begin = nullptr;
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access, or a read outside of W";
  EXPECT_EQ(y.Damage(), "");
  EXPECT_EQ(x.Damage() + w.Damage(), "");
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < ldy; ++j) {
      const float got = y[i * ldy + j];
      if (j >= n) {
        ASSERT_TRUE(std::isnan(got)) << "padding of y was written";
        continue;
      }
      double sum = 0, magnitude = 0;
      for (std::size_t e = 0; e < k; ++e) {
        const double product =
            static_cast<double>(xs[i * k + e]) * static_cast<double>(ws[j * k + e]);
        sum += product;
        magnitude += std::fabs(product);
      }
      double want = static_cast<double>(q.alpha) * sum;
      if (kC != tw::Type::kNone)
        want += static_cast<double>(q.beta) * static_cast<double>(c[i * n + j]);
      // Each addition rounds a partial sum that is at most the sum of magnitudes; a lane adds k
      // / 32.
      const double bound = 0x1p-24 * (static_cast<double>(k) / 32 + 16) * magnitude *
                               std::fabs(static_cast<double>(q.alpha)) +
                           1e-6;
      ASSERT_NEAR(static_cast<double>(got), want, bound) << "row " << i << " column " << j;
    }
  }
}

using tw::Type;

TEST(GemvTest, PlainWeightsOfEveryLengthOfATailAndAnyNumberOfRows) {
  for (const int k : {1, 7, 8, 9, 255, 256, 257, 1000, 2056}) {
    ExpectProduct<Type::kF32, Type::kBF16, 1, 8, 4, 1, 4>(
        {.m = 1, .n = 11, .k = k, .pad_x = 8 - k % 8, .pad_w = 8 - k % 8});
    ExpectProduct<Type::kBF16, Type::kBF16, 2, 4, 4, 4, 2>(
        {.m = 3, .n = 5, .k = k, .pad_x = 8 - k % 8, .pad_w = 8 - k % 8});
    ExpectProduct<Type::kBF16, Type::kF32, 1, 2, 4, 4, 4>(
        {.m = 1, .n = 5, .k = k, .pad_x = 8 - k % 8, .pad_w = 8 - k % 8});
  }
  ExpectProduct<Type::kF32, Type::kF32, 8, 4, 4, 4, 1>({.m = 13, .n = 7, .k = 1028});
  ExpectProduct<Type::kF32, Type::kF16, 8, 2, 4, 4, 2>({.m = 13, .n = 3, .k = 776});
}

TEST(GemvTest, RowsThatAreNotAlignedTakeTheSlowWay) {
  ExpectProduct<Type::kF32, Type::kBF16, 2, 8, 4, 2, 2>({.m = 2, .n = 9, .k = 515});
  ExpectProduct<Type::kF32, Type::kBF16, 1, 8, 4, 1, 2>({.m = 1, .n = 9, .k = 512, .shift = 1});
  ExpectProduct<Type::kBF16, Type::kF16, 1, 8, 4, 1, 2>({.m = 1, .n = 9, .k = 512, .shift = 3});
  ExpectProduct<Type::kBF16, Type::kF32, 1, 8, 4, 1, 2>({.m = 1, .n = 9, .k = 515, .shift = 1});
}

TEST(GemvTest, TheAddendAndAlphaAreApplied) {
  ExpectProduct<Type::kF32, Type::kBF16, 2, 8, 4, 2, 1, Type::kF32>(
      {.m = 3, .n = 9, .k = 264, .alpha = -0.5f, .beta = 2});
  ExpectProduct<Type::kF32, Type::kQ4_K, 1, 16, 4, 4, 2, Type::kF32>(
      {.m = 1, .n = 6, .k = 512, .alpha = 3, .beta = 1});
}

/// One row of x, and as many as fill two, four and eight columns of an mma.
template <Type kType>
void ExpectBlocks(std::initializer_list<int> ks) {
  for (const int k : ks) {
    ExpectProduct<Type::kBF16, kType, 1, 32, 2, 1, 2>({.m = 1, .n = 19, .k = k});
    ExpectProduct<Type::kF32, kType, 1, 16, 4, 4, 3>({.m = 2, .n = 3, .k = k, .pad_x = 4});
    ExpectProduct<Type::kBF16, kType, 2, 32, 2, 2, 3>({.m = 3, .n = 35, .k = k, .pad_x = 4});
    ExpectProduct<Type::kBF16, kType, 3, 16, 1, 1, 2>({.m = 4, .n = 16, .k = k});
    ExpectProduct<Type::kF32, kType, 4, 16, 2, 2, 2>({.m = 5, .n = 18, .k = k});
    ExpectProduct<Type::kBF16, kType, 8, 16, 2, 2, 4>({.m = 11, .n = 9, .k = k});
    ExpectProduct<Type::kF32, kType, 8, 32, 1, 1, 2>({.m = 8, .n = 33, .k = k});
  }
}

/// One to three parts of x, eight columns and fewer.
template <Type kType>
void ExpectFewBlocks() {
  constexpr int kUnit = test::RowUnit(tw::Codes<kType>::kBlock, tw::Codes<kType>::kBytes);
  for (const int k : {kUnit, 768, 1024 + kUnit, 2048 + 3 * kUnit}) {
    ExpectProduct<Type::kBF16, kType, 1, 16, 2, 2, 2>({.m = 1, .n = 18, .k = k});
    ExpectProduct<Type::kF32, kType, 2, 16, 2, 2, 3>({.m = 3, .n = 35, .k = k, .pad_x = 4});
    ExpectProduct<Type::kBF16, kType, 8, 32, 1, 1, 2>({.m = 11, .n = 33, .k = k});
  }
}

TEST(GemvTest, BlocksOf32OfEveryNumberOfBlocks) {
  ExpectBlocks<Type::kQ4_0>({32, 224, 256, 288, 1536, 2080});
  ExpectBlocks<Type::kQ4_1>({32, 224, 256, 288, 1536, 2080});
  ExpectBlocks<Type::kQ8_0>({32, 224, 256, 288, 1536, 2080});
}

TEST(GemvTest, BlocksOfCodesOfEveryNumberOfBlocks) {
  cuda::ForEachBlockOfCodes([]<Type kType>() { ExpectFewBlocks<kType>(); });
}

TEST(GemvTest, BlocksOf256OfEveryNumberOfBlocks) {
  ExpectBlocks<Type::kQ4_K>({256, 512, 768, 1024, 2304});
  ExpectBlocks<Type::kQ6_K>({256, 512, 768, 1024, 2304});
}

// Copies are of 16 aligned bytes wherever rows begin, and read nothing outside of the matrix.
template <Type kType>
void ExpectShiftedRows(int alignment, int k) {
  const int unit = test::RowUnit(GetTypeInfo(DataTypeOf(kType)));
  for (int shift = 0; shift < 16; shift += alignment) {
    for (const int pad : {0, 1, 3}) {  // blocks: rows at other residues of 16 bytes
      ExpectProduct<Type::kBF16, kType, 1, 16, 2, 2, 2>(
          {.m = 1, .n = 18, .k = k, .pad_w = pad * unit, .shift_w = shift});
    }
  }
}

TEST(GemvTest, BlocksAtEveryAddressThatTheirFormatAllows) {
  ExpectShiftedRows<Type::kQ4_0>(2, 288);
  ExpectShiftedRows<Type::kQ4_0>(2, 32);
  ExpectShiftedRows<Type::kQ4_1>(4, 288);
  ExpectShiftedRows<Type::kQ8_0>(2, 544);
  ExpectShiftedRows<Type::kQ6_K>(2, 768);
  ExpectShiftedRows<Type::kQ4_K>(16, 768);
  cuda::ForEachBlockOfCodes([]<Type kType>() {
    ExpectShiftedRows<kType>(tw::GemvRowAlignment(tw::Codes<kType>::kBytes),
                             768 + test::RowUnit(GetTypeInfo(DataTypeOf(kType))));
  });
}

TEST(GemvFamiliesTest, EverySpecOfTheCatalogsPassesItsCheckOnce) {
  KernelFamilies families;
  ASSERT_TRUE(AddGemvFamilies(families));
  EXPECT_FALSE(AddGemvFamilies(families)) << "the names are taken";
  for (const CudaArch arch :
       {CudaArch{80, 0}, CudaArch{89, 0}, kHopper, CudaArch{100, 'a'}, CudaArch{120, 0}}) {
    std::vector<KernelSpec> all = families.Catalog(arch);
    ASSERT_FALSE(all.empty());
    for (const KernelSpec& spec : all) {
      const KernelFamily* family = families.Find(spec.family);
      ASSERT_NE(family, nullptr);
      const auto no = family->check(spec);
      EXPECT_FALSE(no.has_value()) << no->ToString();
      EXPECT_EQ(spec.arch, arch);
      EXPECT_EQ(family->launch(spec).threads, spec.warps * 32u);
      EXPECT_GE(family->limits(spec).max_registers, 64u);
      EXPECT_EQ(std::count(all.begin(), all.end(), spec), 1);
    }
  }
  EXPECT_TRUE(families.Catalog(CudaArch{75, 0}).empty());
  EXPECT_TRUE(GemvSpecsForWeight(DataType::kU4, kHopper).empty());
}

TEST(GemvFamiliesTest, ASpecThatNoKernelHasIsRefusedWithItsField) {
  KernelFamilies families;
  ASSERT_TRUE(AddGemvFamilies(families));
  const KernelSpec good = GemvSpecsForWeight(DataType::kQ4_K, kHopper).front();
  const KernelFamily& family = *families.Find("gemv_q");
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = family.check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_NE(no->ToString().find(word), std::string::npos) << no->ToString();
  };
  refused([](KernelSpec& s) { s.arch = {75, 0}; }, "sm_75");
  refused([](KernelSpec& s) { s.type_b = DataType::kBF16; }, "bf16");
  refused([](KernelSpec& s) { s.type_a = DataType::kF64; }, "type_a");
  refused([](KernelSpec& s) { s.tile_m = 9; }, "tile_m = 9");
  refused([](KernelSpec& s) { s.tile_n = 24; }, "tile_n = 24");
  refused([](KernelSpec& s) { s.stages = 1; }, "stages = 1");
  refused(
      [](KernelSpec& s) {
        s.warps = 16;
        s.params = {8, 1, 0, 0};
        s.tile_n = 64;
        s.stages = 8;
      },
      "shared memory");
  refused([](KernelSpec& s) { s.params[0] = 3; }, "param0 = 3");
  refused(
      [](KernelSpec& s) {
        s.params[0] = 1;
        s.tile_n = static_cast<std::uint16_t>(16 * s.warps);
      },
      "16 rows for each group");
  refused([](KernelSpec& s) { s.params[3] = 1; }, "param3");
  refused([](KernelSpec& s) { s.type_c = DataType::kF32; }, "type_c");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kScale; }, "epilogue");
  refused([](KernelSpec& s) { s.order_b = Order::kRowMajor; }, "order");
}

/// Of the first kernel for q4_K.
struct Refusals : test::LaunchCase {
  Refusals() : LaunchCase(GemvSpecsForWeight(DataType::kQ4_K, kHopper).front()) {}
  template <class Change>
  std::string After(Change change) const {
    return test::RefusalAfter(*this, change,
                              [](const Refusals& r) { return GemvLaunch(r.spec, r.args); });
  }
};

TEST(GemvLaunchTest, RefusesWhatTheKernelCannotRead) {
  const Refusals good;
  EXPECT_EQ(good.After([](Refusals&) {}), "");
  const auto refused = [&](auto change, const char* words) {
    EXPECT_THAT(good.After(change), testing::HasSubstr(words));
  };
  refused([](Refusals& r) { r.args.b = Refusals::memory + 8; }, "multiples of 16");
  refused([](Refusals& r) { r.args.a = Refusals::memory + 4; }, "rows aligned to four elements");
  refused([](Refusals& r) { r.args.a_layout.ld = 257; }, "rows aligned to four elements");
  refused([](Refusals& r) { r.args.a_layout.cols = r.args.b_layout.rows = 255; }, "k = 255");
  refused([](Refusals& r) { r.args.b_layout.ld = 300; }, "a multiple of 256 for q4_k");
  refused([](Refusals& r) { r.args.a_layout.ld = std::int64_t{1} << 28; }, "ld of A = 268435456");
  refused([](Refusals& r) { r.args.b_layout.type = DataType::kQ8_0; }, "B q8_0, needs q4_k");
  refused([](Refusals& r) { r.args.beta = 1; }, "beta = 1");
  refused([](Refusals& r) { r.spec.family = "gemv_bf16"; }, "a kernel of gemv_bf16");
  // 65,536 CTAs along y are one more than there can be.
  refused([](Refusals& r) { r.args.a_layout.rows = r.args.d_layout.rows = 65536 * r.spec.tile_m; },
          "65536 CTAs along y");
}

TEST(GemvLaunchTest, GridAndMemoryAreThoseOfTheSpec) {
  Refusals r;
  r.args.a_layout.rows = r.args.d_layout.rows = 3 * r.spec.tile_m + 1;
  r.args.b_layout.cols = r.args.d_layout.cols = r.args.d_layout.ld = 5 * r.spec.tile_n;
  const cuda::LaunchResult launch = GemvLaunch(r.spec, r.args);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{5, 4, 1}));
  EXPECT_EQ(launch->block, (std::array<std::uint32_t, 3>{32u * r.spec.warps, 1, 1}));
  EXPECT_EQ(launch->dynamic_smem_bytes, GemvQuantisedFamily().launch(r.spec).dynamic_smem_bytes);
  EXPECT_GT(launch->dynamic_smem_bytes, 0u);
  EXPECT_EQ(launch->workspace.bytes, 0u);
  EXPECT_EQ(launch->workspace.zeroing, cuda::Zeroing::kNone);
  const auto params = launch->params.As<cuda::GemvParams>();
  ASSERT_TRUE(params);
  EXPECT_EQ(params->w_row_bytes, 144);
  EXPECT_EQ(params->ldx, 256);
}

}  // namespace
}  // namespace tilewright
