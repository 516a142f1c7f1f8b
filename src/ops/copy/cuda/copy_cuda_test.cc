#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "device/cuda/block_types.h"
#include "ops/copy/cuda/copy_cases.h"
#include "ops/copy/cuda/copy_kernel.cuh"
#include "ops/copy/cuda/copy_launch.h"
#include "ops/copy/cuda/families.h"

// The source of the kernels, run on the CPU as CopyLaunch launches them, against the float64 oracle
// of the room.

namespace tilewright {
namespace {

using tw::Type;

constexpr CudaArch kHopper{90, 'a'};
constexpr int kWarps = 1;

template <Type kFrom, Type kTo>
Status Emulate(const copy::Args& args) {
  KernelSpec spec;
  spec.family = "copy";
  spec.arch = kHopper;
  spec.type_a = static_cast<DataType>(kFrom);
  spec.type_d = static_cast<DataType>(kTo);
  spec.order_a = spec.order_b = Order::kRowMajor;
  spec.warps = kWarps;
  EXPECT_EQ(CopyFamily().check(spec), std::nullopt) << SpecName(spec);
  const cuda::LaunchResult launch = CopyLaunch(spec, args);
  if (!launch) return Fail(ErrorCode::kInvalidArgument, launch.error().ToString());
  const bool ran =
      tw::emulation::RunLaunch<tw::CopyParams>(*launch, kWarps * 32, [](const tw::CopyParams& p) {
        if constexpr (kFrom == Type::kU8) {
          using Bytes = tw::CopyBytes<kWarps>;
          Bytes{p}.Run(blockIdx.x * static_cast<unsigned>(Bytes::kThreads * Bytes::kItems) +
                       threadIdx.x);
        } else {
          tw::Convert<kFrom, kTo>{p}.Run(blockIdx.x * (kWarps * 32u) + threadIdx.x);
        }
      });
  if (!ran) return Fail(ErrorCode::kInternal, "a launch that a GPU refuses, or a hang");
  return {};
}

template <Type kFrom, Type kTo>
void ExpectCopies(DataType src, DataType dst) {
  for (const auto& one : copy::CudaCases(src, dst)) {
    EXPECT_EQ(test::RunCase(one, &copy::Reference,
                            [](const auto& call, test::Arena& arena) {
                              return Emulate<kFrom, kTo>(call.At(arena.base()));
                            }),
              "");
  }
}
template <Type kFrom, Type kTo>
void ExpectConversion() {
  ExpectCopies<kFrom, kTo>(static_cast<DataType>(kFrom), static_cast<DataType>(kTo));
}

TEST(CopyKernelTest, ConvertsFloats) {
  ExpectConversion<Type::kF32, Type::kBF16>();
  ExpectConversion<Type::kF32, Type::kF16>();
  ExpectConversion<Type::kBF16, Type::kF32>();
  ExpectConversion<Type::kBF16, Type::kF16>();
  ExpectConversion<Type::kF16, Type::kF32>();
  ExpectConversion<Type::kF16, Type::kBF16>();
}

template <Type kFrom>
void ExpectUnpacked() {
  ExpectConversion<kFrom, Type::kF32>();
  ExpectConversion<kFrom, Type::kBF16>();
  ExpectConversion<kFrom, Type::kF16>();
}

TEST(CopyKernelTest, UnpacksBlocks) {
  cuda::ForEachBlockType([]<Type kType>() { ExpectUnpacked<kType>(); });
}

TEST(CopyKernelTest, CopiesTheBytesOfAnyType) {
  for (const DataType type : {DataType::kF32, DataType::kBF16, DataType::kF16, DataType::kI32,
                              DataType::kI8, DataType::kF64, DataType::kQ4_0, DataType::kQ6_K}) {
    ExpectCopies<Type::kU8, Type::kU8>(type, type);
  }
}

TEST(CopyLaunchTest, TakesTheWidestUnitThatFits) {
  alignas(16) std::byte from[4096], to[4096];
  KernelSpec spec;
  for (const KernelSpec& one : CopyFamily().catalog(kHopper)) {
    if (one.type_a == DataType::kU8) spec = one;
  }
  const auto unit = [&](DataType type, std::int64_t cols, std::int64_t stride, int shift) {
    const copy::Args args{TensorView{from + shift, {cols, 3, 1, 1}, {1, stride, 0, 0}, type},
                          TensorView{to, {cols, 3, 1, 1}, {1, stride, 0, 0}, type}};
    const cuda::LaunchResult launch = CopyLaunch(spec, args);
    EXPECT_TRUE(launch) << launch.error().ToString();
    return launch ? launch->params.As<cuda::CopyParams>()->unit_bytes : 0;
  };
  EXPECT_EQ(unit(DataType::kF32, 64, 64, 0), 16);
  EXPECT_EQ(unit(DataType::kF32, 64, 66, 0), 8);
  EXPECT_EQ(unit(DataType::kF32, 64, 64, 4), 4);
  EXPECT_EQ(unit(DataType::kBF16, 64, 64, 2), 2);
  EXPECT_EQ(unit(DataType::kU8, 64, 64, 1), 1);
  EXPECT_EQ(unit(DataType::kQ4_0, 64, 96, 0), 2);
  EXPECT_EQ(unit(DataType::kQ4_K, 256, 512, 0), 16);
}

TEST(CopyLaunchTest, RefusesViewsThatDoNotFitTheSpecOrEachOther) {
  alignas(16) float memory[512] = {};
  KernelSpec spec;
  for (const KernelSpec& one : CopyFamily().catalog(kHopper)) {
    if (one.type_a == DataType::kQ4_0 && one.type_d == DataType::kF32) spec = one;
  }
  const copy::Args good{Contiguous(memory, DataType::kQ4_0, {32, 2, 1, 1}),
                        Contiguous(memory, DataType::kF32, {32, 2, 1, 1})};
  const cuda::LaunchResult launch = CopyLaunch(spec, good);
  ASSERT_TRUE(launch) << launch.error().ToString();
  EXPECT_EQ(launch->block[0], 32u * spec.warps);
  const auto refused = [&](auto change, const char* words) {
    copy::Args args = good;
    change(args);
    const cuda::LaunchResult no = CopyLaunch(spec, args);
    ASSERT_FALSE(no) << words;
    EXPECT_THAT(no.error().ToString(), testing::HasSubstr(words));
  };
  refused([](copy::Args& a) { a.src.dtype = DataType::kQ4_1; }, "src q4_1, needs q4_0");
  refused([](copy::Args& a) { a.dst.shape[1] = 3; }, "dst [32, 3, 1, 1], needs [32, 2, 1, 1]");
  refused([](copy::Args& a) { a.dst.data = nullptr; }, "dst is null");
  refused([](copy::Args& a) { a.src.shape[0] = a.dst.shape[0] = 33; }, "parts of blocks");
  refused([](copy::Args& a) { a.src.stride[0] = 2; }, "values of blocks apart");
  refused([](copy::Args& a) { a.src.shape[3] = std::int64_t{1} << 40; }, "an extent of");
  refused([](copy::Args& a) { a.src.data = a.src.as<char>() + 1; }, "a multiple of 2 bytes");
  spec.family = "rmsnorm";
  refused([](copy::Args&) {}, "a kernel of rmsnorm");
}

TEST(CopyFamilyTest, EverySpecPassesItsCheckAndNoOtherFieldMayBeSet) {
  KernelFamilies families;
  ASSERT_TRUE(AddCopyFamilies(families));
  const std::vector<KernelSpec> all = families.Catalog(kHopper);
  EXPECT_EQ(all.size(), 7 + 3 * cuda::kBlockTypes.size() + 9);
  for (const KernelSpec& spec : all) {
    EXPECT_FALSE(families.Find(spec.family)->check(spec).has_value()) << SpecName(spec);
    EXPECT_EQ(std::count(all.begin(), all.end(), spec), 1);
  }
  EXPECT_TRUE(families.Catalog({75, 0}).empty());
  EXPECT_TRUE(UnpackSpecs(DataType::kF32, kHopper).empty());
  const auto refused = [&](const char* family, auto change, const char* word) {
    KernelSpec spec = families.Find(family)->catalog(kHopper).front();
    change(spec);
    const auto no = families.Find(family)->check(spec);
    ASSERT_TRUE(no.has_value()) << word;
    EXPECT_NE(no->ToString().find(word), std::string::npos) << no->ToString();
  };
  refused(
      "copy", [](KernelSpec& s) { s.type_d = DataType::kF32; }, "type_a = u8, type_d = f32");
  refused(
      "copy", [](KernelSpec& s) { s.type_a = s.type_d = DataType::kF32; }, "type_a = f32");
  refused(
      "copy", [](KernelSpec& s) { s.type_c = DataType::kF32; }, "does not use");
  refused(
      "copy", [](KernelSpec& s) { s.stages = 1; }, "does not use");
  refused(
      "kv_scatter", [](KernelSpec& s) { s.type_c = DataType::kQ8_0; }, "type_c = q8_0");
  refused(
      "kv_scatter", [](KernelSpec& s) { s.params[3] = 1; }, "does not use");
  refused(
      "kv_scatter", [](KernelSpec& s) { s.warps = 0; }, "warps = 0");
}

}  // namespace
}  // namespace tilewright
