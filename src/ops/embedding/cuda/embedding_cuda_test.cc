#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/test_util.h"
#include "device/cuda/block_types.h"
#include "ops/embedding/cuda/embedding_cases.h"
#include "ops/embedding/cuda/embedding_kernel.cuh"
#include "ops/embedding/cuda/embedding_launch.h"
#include "ops/embedding/cuda/families.h"

// The source of the kernels, run on the CPU as EmbeddingLaunch launches them, against the float64
// oracle of the room.

namespace tilewright {
namespace {

using tw::Type;

constexpr CudaArch kHopper{90, 'a'};
constexpr int kWarps = 1;

template <Type kTable, Type kOut>
Status Emulate(const KernelSpec& spec, const embedding::Args& args) {
  const cuda::LaunchResult launch = EmbeddingLaunch(spec, args);
  if (!launch) return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
  const bool ran = tw::emulation::RunLaunch<tw::EmbeddingParams>(
      *launch, kWarps * 32, [](const tw::EmbeddingParams& p) {
        tw::Embedding<kTable, kOut, kWarps>{p, static_cast<int>(blockIdx.x)}.Run();
      });
  if (!ran) return Fail(ErrorCode::kInternal, "a launch that a GPU refuses, or a hang");
  return {};
}

KernelSpec SpecOf(DataType table, DataType out) {
  for (KernelSpec spec : EmbeddingSpecs(table, kHopper)) {
    spec.warps = kWarps;
    EXPECT_EQ(EmbeddingFamily().check(spec), std::nullopt) << SpecName(spec);
    if (spec.type_d == out) return spec;
  }
  ADD_FAILURE() << "no kernel for " << DataTypeName(table);
  return {};
}

template <Type kTable, Type kOut>
void ExpectRows() {
  const auto table = static_cast<DataType>(kTable), out = static_cast<DataType>(kOut);
  const KernelSpec spec = SpecOf(table, out);
  for (const auto& one : embedding::CudaCases(table, out)) {
    EXPECT_EQ(test::RunCase(one, &embedding::Reference,
                            [&](const auto& call, test::Arena& arena) {
                              return Emulate<kTable, kOut>(spec, call.At(arena.base()));
                            }),
              "");
  }
}

template <Type kTable>
void ExpectEveryOutput() {
  ExpectRows<kTable, Type::kF32>();
  ExpectRows<kTable, Type::kBF16>();
  ExpectRows<kTable, Type::kF16>();
}

TEST(EmbeddingKernelTest, GathersPlainRows) {
  ExpectEveryOutput<Type::kF32>();
  ExpectEveryOutput<Type::kBF16>();
  ExpectEveryOutput<Type::kF16>();
}

TEST(EmbeddingKernelTest, GathersAndDecodesBlocks) {
  cuda::ForEachBlockType([]<Type kType>() { ExpectEveryOutput<kType>(); });
}

template <Type kTable>
void ExpectDecodedAsDecodeRow() {
  const auto type = static_cast<DataType>(kTable);
  constexpr std::int64_t kHidden = 256 * 64;
  test::GuardedBytes table(BytesOf(type, kHidden));
  Random random(9);
  for (std::size_t i = 0; i < table.size(); ++i)
    static_cast<unsigned char*>(table.data())[i] = static_cast<unsigned char>(random.Next() >> 32);
  std::vector<float> want(kHidden), got(kHidden);
  std::vector<std::int32_t> ids = {0};
  ASSERT_TRUE(DecodeRow(type, table.data(), kHidden, want.data()));
  const embedding::Args args{Contiguous(table.data(), type, {kHidden, 1, 1, 1}),
                             Contiguous(ids.data(), DataType::kI32, {1, 1, 1, 1}),
                             Contiguous(got.data(), DataType::kF32, {kHidden, 1, 1, 1})};
  ASSERT_TRUE((Emulate<kTable, Type::kF32>(SpecOf(type, DataType::kF32), args)));
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << DataTypeName(type) << " " << i;
    } else {
      ASSERT_EQ(got[i], want[i]) << DataTypeName(type) << " " << i;
    }
  }
}

TEST(EmbeddingKernelTest, RandomBitsDecodeAsDecodeRowDecodesThem) {
  cuda::ForEachBlockType([]<Type kType>() { ExpectDecodedAsDecodeRow<kType>(); });
}

TEST(EmbeddingKernelTest, AnIdThatNamesNoEntryGivesNaN) {
  std::vector<float> table(4 * 2, 1.0f), out(4 * 4, 5.0f);
  std::vector<std::int32_t> ids = {2, -1, -2, 1};
  const embedding::Args args{Contiguous(table.data(), DataType::kF32, {4, 2, 1, 1}),
                             Contiguous(ids.data(), DataType::kI32, {4, 1, 1, 1}),
                             Contiguous(out.data(), DataType::kF32, {4, 4, 1, 1})};
  const KernelSpec spec = SpecOf(DataType::kF32, DataType::kF32);
  ASSERT_TRUE((Emulate<Type::kF32, Type::kF32>(spec, args)));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isnan(out[i]));
    EXPECT_EQ(out[4 + i], 0.0f);
    EXPECT_TRUE(std::isnan(out[8 + i]));
    EXPECT_EQ(out[12 + i], 1.0f);
  }
}

TEST(EmbeddingLaunchTest, ReadsAndWritesWideWhereAddressesAllow) {
  alignas(16) float memory[512] = {};
  const auto wide = [&](DataType type, std::int64_t stride, std::int64_t out_stride, int shift) {
    const embedding::Args args{
        TensorView{memory, {32, 4, 1, 1}, {1, stride, 0, 0}, type},
        Contiguous(memory, DataType::kI32, {3, 1, 1, 1}),
        TensorView{memory + shift, {32, 3, 1, 1}, {1, out_stride, 0, 0}, DataType::kF32}};
    const cuda::LaunchResult launch = EmbeddingLaunch(SpecOf(type, DataType::kF32), args);
    EXPECT_TRUE(launch) << launch.error().ToString();
    return launch ? launch->params.As<cuda::EmbeddingParams>()->wide : -1;
  };
  EXPECT_EQ(wide(DataType::kF32, 32, 32, 0), 1);
  EXPECT_EQ(wide(DataType::kF32, 34, 32, 0), 0);
  EXPECT_EQ(wide(DataType::kF32, 32, 34, 0), 0);
  EXPECT_EQ(wide(DataType::kF32, 32, 32, 2), 0);
  EXPECT_EQ(wide(DataType::kQ4_0, 32, 32, 0), 1) << "rows of 18 bytes are read by twos anyway";
  EXPECT_EQ(wide(DataType::kQ4_0, 32, 32, 1), 0);
}

TEST(EmbeddingLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  float memory[64] = {};
  const KernelSpec spec = SpecOf(DataType::kF32, DataType::kF32);
  embedding::Args good{Contiguous(memory, DataType::kF32, {4, 4, 1, 1}),
                       Contiguous(memory, DataType::kI32, {3, 1, 1, 1}),
                       Contiguous(memory, DataType::kF32, {4, 3, 1, 1})};
  const cuda::LaunchResult launch = EmbeddingLaunch(spec, good);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->grid, (std::array<std::uint32_t, 3>{3, 1, 1}));
  EXPECT_EQ(launch->block[0], 32u * spec.warps);
  const auto refused = [&](auto change, const char* words) {
    embedding::Args args = good;
    change(args);
    const cuda::LaunchResult no = EmbeddingLaunch(spec, args);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  refused([](embedding::Args& a) { a.table.dtype = DataType::kBF16; }, "table bf16, needs f32");
  refused([](embedding::Args& a) { a.out.shape[0] = 5; }, "out [5, 3, 1, 1], needs [4, 3, 1, 1]");
  refused([](embedding::Args& a) { a.out.shape[1] = 0; }, "0 rows of 4");
  refused([](embedding::Args& a) { a.ids.shape[0] = 2; }, "ids of 2 elements");
  refused([](embedding::Args& a) { a.ids.data = nullptr; }, "ids is null");
  refused([](embedding::Args& a) { a.table.stride[0] = 2; }, "elements apart");
  refused([](embedding::Args& a) { a.out.data = a.out.as<char>() + 2; }, "a multiple of 4 bytes");
  KernelSpec other = spec;
  other.family = "rmsnorm";
  EXPECT_THAT(EmbeddingLaunch(other, good).error().ToString(),
              testing::HasSubstr("a kernel of rmsnorm"));
}

TEST(EmbeddingFamilyTest, EverySpecPassesItsCheckAndNoOtherFieldMayBeSet) {
  KernelFamilies families;
  ASSERT_TRUE(AddEmbeddingFamilies(families));
  const KernelFamily& family = *families.Find("embedding");
  const std::vector<KernelSpec> all = families.Catalog(kHopper);
  EXPECT_EQ(all.size(), 3 * (3 + cuda::kBlockTypes.size()));
  for (const KernelSpec& spec : all) {
    EXPECT_FALSE(family.check(spec).has_value()) << SpecName(spec);
    EXPECT_EQ(std::count(all.begin(), all.end(), spec), 1);
  }
  EXPECT_TRUE(families.Catalog({75, 0}).empty());
  EXPECT_TRUE(EmbeddingSpecs(DataType::kU4, kHopper).empty());
  const auto refused = [&](auto change, const char* word) {
    KernelSpec spec = all.front();
    change(spec);
    const auto no = family.check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_NE(no->ToString().find(word), std::string::npos) << no->ToString();
  };
  refused([](KernelSpec& s) { s.type_a = DataType::kI32; }, "type_a = i32");
  refused([](KernelSpec& s) { s.type_d = DataType::kQ4_0; }, "type_d = q4_0");
  refused([](KernelSpec& s) { s.type_b = DataType::kF32; }, "type_b = f32");
  refused([](KernelSpec& s) { s.warps = 33; }, "warps = 33");
  refused([](KernelSpec& s) { s.params[0] = 1; }, "does not use");
  refused([](KernelSpec& s) { s.epilogue = SpecEpilogue::kAdd; }, "does not use");
}

}  // namespace
}  // namespace tilewright
