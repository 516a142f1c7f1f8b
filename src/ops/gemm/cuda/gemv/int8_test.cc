#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "device/cuda/block_types.h"
#include "ops/gemm/cuda/gemv/int8_case.h"
#include "ops/gemm/cuda/launch_case.h"

namespace tilewright {
namespace {

using test_int8::Case;
using test_int8::kHopper;
using test_int8::Problem;
using tw::Type;
using enum tw::Epilogue;

template <Type kX, Type kW, tw::Epilogue kEpilogue, int kTileM, int kRows, int kWarps, int kStages,
          int kTurns = 1>
using Int8Kernel = test_int8::Kernel<kX, kW, kEpilogue, kTileM, kRows, kWarps, kStages, kTurns>;

// What several tests run is compiled once.
template <Type kW>
using OneRow = Int8Kernel<Type::kBF16, kW, kNone, 1, 2, 3, 4>;
template <Type kW>
using TwoRows = Int8Kernel<Type::kBF16, kW, kNone, 2, 4, 2, 3, 2>;

/// Rows of every number of blocks, units and warps that end early, tile_m rows of x and fewer.
template <Type kW>
void ExpectProducts(std::initializer_list<int> ks) {
  for (const int k : ks) {
    OneRow<kW>::Expect({.m = 1, .n = 19, .k = k});
    Int8Kernel<Type::kF32, kW, kNone, 1, 1, 2, 2>::Expect({.m = 1, .n = 7, .k = k, .pad_x = 8});
    TwoRows<kW>::Expect({.m = 2, .n = 10, .k = k, .pad_x = 32});
    Int8Kernel<Type::kBF16, kW, kNone, 4, 2, 2, 2>::Expect({.m = 3, .n = 5, .k = k});
    Int8Kernel<Type::kBF16, kW, kNone, 8, 2, 1, 2>::Expect({.m = 8, .n = 3, .k = k});
  }
}

/// The same with fewer kinds of kernels, which compile longer than they run.
template <Type kW>
void ExpectFewProducts() {
  constexpr int kUnit = test::RowUnit(tw::Int8Codes<kW>::kBlock, tw::Int8Codes<kW>::kBytes);
  for (const int k : {kUnit, 768, 1024, 2048 + kUnit}) {
    OneRow<kW>::Expect({.m = 1, .n = 19, .k = k});
    TwoRows<kW>::Expect({.m = 2, .n = 10, .k = k, .pad_x = 32});
  }
}

TEST(GemvInt8, BlocksOf32OfEveryNumberOfBlocks) {
  ExpectProducts<Type::kQ4_0>({32, 224, 1056, 2080});
  ExpectProducts<Type::kQ4_1>({32, 576, 1024, 2080});
  ExpectProducts<Type::kQ8_0>({64, 960, 2048, 2112});
}

TEST(GemvInt8, BlocksOfCodesOfEveryNumberOfBlocks) {
  cuda::ForEachBlockOfCodes([]<Type kType>() { ExpectFewProducts<kType>(); });
}

TEST(GemvInt8, BlocksOf256OfEveryNumberOfBlocks) {
  ExpectProducts<Type::kQ4_K>({256, 768, 2048, 2304});
  ExpectProducts<Type::kQ6_K>({256, 768, 2048, 2304});
}

TEST(GemvInt8, RowsOfOneSegmentThatLeaveLanesIdle) {
  // Segments of 1,024 values, of which lanes take 64 each.
  using Short = test_int8::Kernel<Type::kBF16, Type::kQ8_0, kNone, 1, 2, 3, 5, 0, true>;
  for (const int k : {64, 576, 1024}) Short::Expect({.m = 1, .n = 19, .k = k});
  EXPECT_EQ(GemvInt8MaxK(Short::Spec()), 1024);
}

template <Type kW, tw::Epilogue kEpilogue = kNone, bool kNorm = false>
using BulkRow = test_int8::Kernel<Type::kBF16, kW, kEpilogue, 1, 2, 3, 3,
                                  2048 / 32 / tw::Int8Codes<kW>::kChunk, kNorm, true>;

TEST(GemvInt8, WholeSegmentsThatTheCopyEngineBrings) {
  for (const int n : {1, 19, 40}) {
    for (const int k : {2048, 8192}) BulkRow<Type::kQ8_0>::Expect({.m = 1, .n = n, .k = k});
  }
  BulkRow<Type::kQ4_K>::Expect({.m = 1, .n = 19, .k = 6144, .pad_w = 256});
  BulkRow<Type::kQ6_K>::Expect({.m = 1, .n = 19, .k = 4096, .pad_w = 2048});
  BulkRow<Type::kQ4_1, kAdd>::Expect({.m = 1, .n = 19, .k = 4096, .alpha = -0.5f, .beta = 2});
  BulkRow<Type::kQ8_0, kSwiGlu>::Expect({.m = 1, .n = 96, .k = 4096});
  BulkRow<Type::kQ4_0, kNone, true>::Expect({.m = 1, .n = 19, .k = 4096});
}

TEST(GemvInt8, FewerAndMoreRowsOfWeightsThanWarpsAndMultiprocessors) {
  for (const int n : {1, 2, 5, 12, 13, 50}) {
    OneRow<Type::kQ8_0>::Expect({.m = 1, .n = n, .k = 1088});
  }
}

TEST(GemvInt8, AlphaAndTheAddendAreApplied) {
  Int8Kernel<Type::kBF16, Type::kQ4_K, kAdd, 1, 2, 2, 3>::Expect(
      {.m = 1, .n = 9, .k = 768, .alpha = -0.5f, .beta = 2});
  Int8Kernel<Type::kF32, Type::kQ4_1, kAdd, 4, 2, 2, 3>::Expect(
      {.m = 3, .n = 9, .k = 96, .beta = 1});
  Int8Kernel<Type::kBF16, Type::kQ8_0, kAdd, 1, 2, 2, 3>::Expect({.m = 1, .n = 9, .k = 192});
}

TEST(GemvInt8, GateAndUpBecomeOneElement) {
  for (const int n : {32, 96}) {
    Int8Kernel<Type::kBF16, Type::kQ4_K, kSwiGlu, 1, 2, 2, 3>::Expect({.m = 1, .n = n, .k = 512});
    Int8Kernel<Type::kF32, Type::kQ8_0, kSwiGlu, 2, 4, 2, 3>::Expect(
        {.m = 2, .n = n, .k = 320, .alpha = 0.5f});
    Int8Kernel<Type::kBF16, Type::kQ6_K, kSwiGlu, 1, 8, 3, 2>::Expect({.m = 1, .n = n, .k = 256});
  }
}

// Copies are of 16 aligned bytes wherever rows begin, and read nothing outside of the matrix.
template <Type kW>
void ExpectShiftedRows(int alignment, int k) {
  const int unit = test::RowUnit(tw::Int8Codes<kW>::kBlock, tw::Int8Codes<kW>::kBytes);
  for (int shift = 0; shift < 16; shift += alignment) {
    for (const int pad : {0, 1, 3}) {  // blocks: rows at other residues of 16 bytes
      OneRow<kW>::Expect({.m = 1, .n = 5, .k = k, .pad_w = pad * unit, .shift_w = shift});
    }
  }
}

TEST(GemvInt8, BlocksAtEveryAddressThatTheirFormatAllows) {
  ExpectShiftedRows<Type::kQ4_0>(2, 1088);
  ExpectShiftedRows<Type::kQ4_1>(4, 1056);
  ExpectShiftedRows<Type::kQ8_0>(2, 1088);
  ExpectShiftedRows<Type::kQ6_K>(2, 2304);
  ExpectShiftedRows<Type::kQ4_K>(16, 768);
  cuda::ForEachBlockOfCodes([]<Type kType>() {
    ExpectShiftedRows<kType>(tilewright::cuda::GemvRowAlignment(tw::Int8Codes<kType>::kBytes),
                             1024 + test::RowUnit(GetTypeInfo(static_cast<DataType>(kType))));
  });
}

TEST(GemvInt8, ARowThatIsNotFiniteIsNaNAndTheOthersAreAsTheyWere) {
  using K = TwoRows<Type::kQ4_0>;
  for (const float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const Problem q{.m = 2, .n = 6, .k = 1088};
    Case whole(K::Spec(), q), broken(K::Spec(), q);
    std::vector<float> row = test::RandomFloats(1088, 3);
    row[1087] = value;
    broken.SetX(1, row);
    whole.ExpectRuns(&K::Run);
    broken.ExpectRuns(&K::Run);
    for (int j = 0; j < 6; ++j) {
      EXPECT_EQ(whole.y(0, j), broken.y(0, j));
      EXPECT_TRUE(std::isnan(broken.y(1, j)));
    }
  }
}

std::string Refusal(const KernelSpec& spec, const GemmArgs& args) {
  const cuda::LaunchResult launch = GemvInt8Launch(spec, args, 132);
  return launch ? "" : launch.error().ToString();
}

TEST(GemvInt8, RefusesWhatTheKernelCannotRead) {
  const KernelSpec spec = GemvInt8Specs(DataType::kQ8_0, kHopper)[2];
  ASSERT_EQ(spec.type_a, DataType::kBF16);
  alignas(16) static unsigned char memory[64];
  GemmArgs good;
  good.a = good.b = memory, good.d = memory;
  good.a_layout = {.type = spec.type_a, .rows = 1, .cols = 256, .ld = 256};
  good.b_layout = {
      .type = spec.type_b, .order = Order::kColMajor, .rows = 256, .cols = 3, .ld = 256};
  good.d_layout = {.type = spec.type_d, .rows = 1, .cols = 3, .ld = 3};
  EXPECT_EQ(Refusal(spec, good), "");
  const auto refused = [&](auto change, const char* words) {
    GemmArgs args = good;
    change(args);
    EXPECT_THAT(Refusal(spec, args), testing::HasSubstr(words));
  };
  refused([](GemmArgs& a) { a.b = memory + 1; }, "multiples of 2");
  refused([](GemmArgs& a) { a.a = memory + 8; }, "multiples of 16");
  refused([](GemmArgs& a) { a.a_layout.cols = a.b_layout.rows = 224; }, "a multiple of 64");
  refused([](GemmArgs& a) { a.a_layout.cols = a.b_layout.rows = 250; }, "k = 250");
  refused([](GemmArgs& a) { a.a_layout.rows = a.d_layout.rows = 2; }, "m = 2, needs at most 1");
  const int most = GemvInt8MaxK(spec);
  refused(
      [&](GemmArgs& a) {
        a.a_layout.cols = a.b_layout.rows = most + 32;
        a.a_layout.ld = a.b_layout.ld = most + 32;
      },
      "at most");
  KernelSpec bulk = spec;
  bulk.params[3] = 1;
  EXPECT_THAT(Refusal(bulk, good), testing::HasSubstr("a multiple of 2048"));
  good.a_layout.cols = good.b_layout.rows = good.a_layout.ld = good.b_layout.ld = 2048;
  EXPECT_EQ(Refusal(bulk, good), "");
  good.b = memory + 2;
  EXPECT_THAT(Refusal(bulk, good), testing::HasSubstr("multiples of 16"));
  KernelSpec other = spec;
  other.family = "gemv_q";
  EXPECT_THAT(Refusal(other, good), testing::HasSubstr("gemv_int8"));
}

TEST(GemvInt8, ASpecThatNoKernelHasIsRefusedWithItsField) {
  const KernelSpec good = GemvInt8Specs(DataType::kQ4_K, kHopper).front();
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = good;
    change(spec);
    const auto no = GemvInt8Family().check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_THAT(no->ToString(), testing::HasSubstr(word));
  };
  refused([](KernelSpec& s) { s.type_b = DataType::kBF16; }, "type_b = bf16");
  refused([](KernelSpec& s) { s.tile_m = 3; }, "tile_m = 3");
  refused([](KernelSpec& s) { s.params[0] = 3; }, "param0 = 3");
  refused([](KernelSpec& s) { s.tile_n = 5; }, "tile_n = 5");
  refused([](KernelSpec& s) { s.tile_k = 1536; }, "tile_k = 1536");
  refused([](KernelSpec& s) { s.stages = 1; }, "stages = 1");
  refused([](KernelSpec& s) { s.split_k = 1; }, "split_k");
  refused([](KernelSpec& s) { s.params[3] = 2; }, "param3");
  refused([](KernelSpec& s) { s.params[3] = 1, s.arch = {80, 0}; }, "param3");
  refused([](KernelSpec& s) { s.stages = 8; }, "shared memory");
  refused(
      [](KernelSpec& s) {
        s.epilogue = SpecEpilogue::kSwiGlu, s.type_c = DataType::kNone;
        s.params[0] = 1, s.tile_n = s.warps;
      },
      "a row of gate and one of up");
}

TEST(GemvInt8, EveryRowOfLlamaHasRoomAndTheLaunchFillsTheMultiprocessorsOnce) {
  for (const DataType weight : cuda::kBlockTypes) {
    const std::vector<KernelSpec> specs = GemvInt8Specs(weight, kHopper);
    EXPECT_FALSE(specs.empty());
    for (const KernelSpec& spec : specs) {
      EXPECT_GE(GemvInt8MaxK(spec), spec.tile_k < 2048 ? 1024 : 14336) << SpecName(spec);
    }
  }
  const KernelSpec spec = GemvInt8Specs(DataType::kQ4_K, kHopper)[2];
  const auto launch_of = [&](const Problem& q) {
    Case product(spec, q);
    GemmArgs args = product.Args();
    args.d_layout.type = args.c_layout.type = spec.type_d;
    return GemvInt8Launch(spec, args, q.sm_count).value();
  };
  // 16 rings of three stages of two rows of 2,048 values, x and the scale and sum of each 32.
  constexpr std::uint32_t kRings = 16 * 3 * 2 * 1152, kSm = 228 * 1024, kSystem = 1024;
  const cuda::CudaLaunch small = launch_of({.m = 1, .n = 300, .k = 4096, .sm_count = 132});
  EXPECT_EQ(small.grid, (std::array<std::uint32_t, 3>{132, 1, 1}));
  EXPECT_EQ(small.dynamic_smem_bytes, kRings + 4096 + 4096 / 32 * 8);
  EXPECT_LE(2 * (small.dynamic_smem_bytes + kSystem), kSm) << "the next launch fits beside it";
  const cuda::CudaLaunch large = launch_of({.m = 1, .n = 300, .k = 4096, .sm_count = 8});
  EXPECT_GT(2 * (large.dynamic_smem_bytes + kSystem), kSm) << "an SM holds one CTA";
  EXPECT_LE(large.dynamic_smem_bytes, GemvInt8Family().launch(spec).dynamic_smem_bytes);
}

}  // namespace
}  // namespace tilewright
