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
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemm_q/gemm_q_kernel.cuh"
#include "ops/gemm/cuda/gemm_q/gemm_q_launch.h"
#include "ops/gemm/cuda/launch_case.h"

// The source of the kernels, run on the CPU as GemmQLaunch launches them, against float64.

namespace tilewright {
namespace {

using tw::Type;
constexpr CudaArch kHopper{90, 'a'};
constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }

/// A device with so many multiprocessors: their number decides how often k is split.
DeviceSpec DeviceOf(int sm_count) {
  DeviceSpec device;
  device.kind = DeviceKind::kCuda;
  device.sm_count = sm_count;
  return device;
}

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
  const DataType type_w = DataTypeOf(kW), type_y = DataTypeOf(kY);
  const auto m = static_cast<std::size_t>(q.m), n = static_cast<std::size_t>(q.n),
             k = static_cast<std::size_t>(q.k);
  const std::size_t ldx = k + 8;
  const std::size_t row_bytes = BytesOf(type_w, q.k + q.pad_w);
  // Nothing belongs to x and W behind their last rows.
  test::GuardedBytes x(((m - 1) * ldx + k) * 2);
  test::GuardedBytes w((n - 1) * row_bytes + BytesOf(type_w, q.k),
                       static_cast<std::size_t>(q.shift_w));
  std::vector<float> xs(m * k), ws(n * k);
  for (std::size_t r = 0; r < m; ++r) {
    const std::vector<float> row = test::RandomFloats(k, 100 + r);
    auto* at = static_cast<unsigned char*>(x.data()) + r * ldx * 2;
    ASSERT_TRUE(EncodeRow(DataType::kBF16, row.data(), q.k, at));
    ASSERT_TRUE(DecodeRow(DataType::kBF16, at, q.k, &xs[r * k]));
  }
  for (std::size_t r = 0; r < n; ++r) {
    const std::vector<float> row = test::RandomFloats(k, 500 + r, 0.05);
    auto* at = static_cast<unsigned char*>(w.data()) + r * row_bytes;
    ASSERT_TRUE(EncodeRow(type_w, row.data(), q.k, at));
    ASSERT_TRUE(DecodeRow(type_w, at, q.k, &ws[r * k]));
  }
  const std::size_t columns = kGated ? n / 2 : n;
  const std::size_t ldy = columns + 3;
  const std::size_t bytes_y = BytesOf(type_y, 1);
  test::GuardedBytes y(m * ldy * bytes_y);
  const std::vector<float> cs = test::RandomIntegers(m * n, 9);
  test::GuardedBytes c(m * n * bytes_y);
  ASSERT_TRUE(EncodeRow(type_y, cs.data(), static_cast<std::int64_t>(m * n), c.data()));

  // Some of these have fewer warps than the family ships, which is quicker to emulate.
  KernelSpec spec;
  spec.family = kGemmQ;
  spec.arch = kHopper;
  spec.type_a = DataType::kBF16;
  spec.type_b = type_w;
  spec.type_d = type_y;
  spec.type_c = kGated ? DataType::kNone : type_y;
  spec.order_a = Order::kRowMajor;
  spec.order_b = Order::kColMajor;
  spec.epilogue = kGated ? SpecEpilogue::kSwiGlu : SpecEpilogue::kAdd;
  spec.stages = kStages;
  spec.tile_m = kTileM;
  spec.tile_n = kTileN;
  spec.tile_k = cuda::kGemmQTileK;
  spec.warps = kWarps;
  spec.params = {kParts, 1, 0, 0};
  const std::optional<Rejection> no = GemmQFamily().check(spec);
  ASSERT_FALSE(no) << no->ToString();
  GemmArgs args;
  args.alpha = q.alpha;
  args.beta = q.beta;
  args.a = x.data();
  args.b = w.data();
  args.c = c.data();
  args.d = y.data();
  args.a_layout = {
      .type = spec.type_a, .rows = q.m, .cols = q.k, .ld = static_cast<std::int64_t>(ldx)};
  args.b_layout = {
      .type = type_w, .order = Order::kColMajor, .rows = q.k, .cols = q.n, .ld = q.k + q.pad_w};
  args.c_layout = {.type = type_y, .rows = q.m, .cols = q.n, .ld = q.n};
  args.d_layout = {.type = type_y,
                   .rows = q.m,
                   .cols = static_cast<std::int32_t>(columns),
                   .ld = static_cast<std::int64_t>(ldy)};

  const DeviceSpec device = DeviceOf(q.sms);
  const GemmShape shape{.m = q.m, .n = q.n, .k = q.k};
  ASSERT_EQ(GemmQSplits(spec, shape, device), q.splits);
  const WorkspaceSize size = GemmQWorkspace(spec, shape, device);
  EXPECT_EQ(size.partials != 0, q.splits > 1);
  test::GuardedBytes partials(size.partials);
  test::GuardedBytes barriers(size.barriers);
  std::fill_n(static_cast<std::byte*>(barriers.data()), size.barriers, std::byte{0});
  Workspace workspace;
  workspace.partials = partials.data();
  workspace.partials_size = size.partials;
  workspace.barriers = barriers.data();
  workspace.barriers_size = size.barriers;
  const cuda::LaunchResult launch = GemmQLaunch(spec, args, device, workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  const auto readable = [](const test::GuardedBytes& bytes) {
    const auto* begin =
        static_cast<const unsigned char*>(const_cast<test::GuardedBytes&>(bytes).data());
    return std::pair{begin, begin + bytes.size()};
  };
  std::tie(tw::emulation::readable_begin, tw::emulation::readable_end) = readable(w);
  std::tie(tw::emulation::other_readable_begin, tw::emulation::other_readable_end) = readable(x);
  const bool ran =
      tw::emulation::RunLaunch<tw::GemmQParams>(*launch, kWarps * 32, [](const tw::GemmQParams& p) {
        constexpr auto kEpilogue = kGated ? tw::Epilogue::kSwiGlu : tw::Epilogue::kAdd;
        tw::GemmQ<kW, kGated ? Type::kNone : kY, kY, kEpilogue, kTileM, kTileN, kWarps, kParts,
                  kStages>(p, tw::emulation::smem);
      });
  tw::emulation::readable_begin = nullptr;
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access, or a read outside of x and W";
  EXPECT_EQ(y.Damage() + x.Damage() + w.Damage() + partials.Damage() + barriers.Damage(), "");
  const auto* counters = static_cast<const std::byte*>(barriers.data());
  EXPECT_TRUE(std::all_of(counters, counters + size.barriers, [](std::byte byte) {
    return byte == std::byte{0};
  })) << "the next launch would count from there";

  std::vector<double> got(m * ldy);
  ASSERT_TRUE(DecodeRow(type_y, y.data(), static_cast<std::int64_t>(got.size()), got.data()));
  const double roundoff = kY == Type::kF32 ? 0 : 0x1p-8;
  // The sum of row j of W, and how far one in f32 may be from it.
  const auto sum_of = [&](std::size_t i, std::size_t j) {
    double sum = 0, magnitude = 0;
    for (std::size_t e = 0; e < k; ++e) {
      const double product =
          static_cast<double>(xs[i * k + e]) * static_cast<double>(ws[j * k + e]);
      sum += product;
      magnitude += std::fabs(product);
    }
    // Each addition rounds a partial sum that is at most the sum of magnitudes; a warp adds one
    // for each of its sub-blocks.
    return std::pair{static_cast<double>(q.alpha) * sum,
                     0x1p-24 * (static_cast<double>(k) / 32 + 16) * magnitude *
                         std::fabs(static_cast<double>(q.alpha))};
  };
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < ldy; ++j) {
      if (j >= columns) {
        ASSERT_TRUE(std::isnan(got[i * ldy + j])) << "padding of y was written";
        continue;
      }
      const std::size_t row = kGated ? j / kGatedBlock * (2 * kGatedBlock) + j % kGatedBlock : j;
      auto [want, bound] = sum_of(i, row);
      if constexpr (kGated) {
        const auto [up, up_bound] = sum_of(i, row + kGatedBlock);
        const double silu = want / (1 + std::exp(-want));
        want = silu * up;
        // The derivative of silu is at most 1.1; the kernel's is a few units of the last place off.
        bound = 1.1 * bound * (std::fabs(up) + up_bound) + std::fabs(silu) * up_bound +
                0x1p-21 * std::fabs(want);
      } else if (q.beta != 0) {
        want += static_cast<double>(q.beta) * static_cast<double>(cs[i * n + j]);
      }
      ASSERT_NEAR(got[i * ldy + j], want, bound + 1e-6 + roundoff * std::fabs(want))
          << "row " << i << " column " << j;
    }
  }
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
