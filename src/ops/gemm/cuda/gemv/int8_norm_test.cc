#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "device/cuda/block_types.h"
#include "ops/gemm/cuda/gemv/int8_case.h"

// gemv_int8 whose rows of x are normalised first.

namespace tilewright {
namespace {

using test_int8::Case;
using test_int8::kHopper;
using test_int8::Problem;
using tw::Type;
using enum tw::Epilogue;

template <Type kW, tw::Epilogue kEpilogue, int kTileM, int kRows, int kWarps, Type kX = Type::kBF16>
using Normed = test_int8::Kernel<kX, kW, kEpilogue, kTileM, kRows, kWarps, 3, 1, true>;

TEST(GemvInt8Norm, RowsAreNormalisedOnTheirWayToInt8) {
  // Fewer packs than threads, as many, and more, so that they are read again.
  for (const int k : {32, 96, 512, 1056, 2080}) {
    Normed<Type::kQ8_0, kNone, 1, 2, 2>::Expect({.m = 1, .n = 9, .k = 2 * k});
    Normed<Type::kQ4_1, kAdd, 1, 4, 2>::Expect({.m = 1, .n = 9, .k = k, .beta = 1});
    Normed<Type::kQ4_0, kNone, 4, 2, 2>::Expect({.m = 3, .n = 5, .k = k, .pad_x = 8});
    Normed<Type::kQ8_0, kNone, 2, 1, 1, Type::kF32>::Expect({.m = 2, .n = 3, .k = 2 * k});
  }
  for (const int k : {256, 2304}) {
    Normed<Type::kQ4_K, kSwiGlu, 1, 2, 3>::Expect({.m = 1, .n = 64, .k = k});
    Normed<Type::kQ6_K, kNone, 2, 2, 2>::Expect({.m = 2, .n = 5, .k = k, .alpha = -0.5f});
  }
}

TEST(GemvInt8Norm, ARowThatIsNotFiniteIsNaNAndTheOthersAreAsTheyWere) {
  using K = Normed<Type::kQ4_0, kNone, 2, 2, 2>;
  for (const float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const Problem q{.m = 2, .n = 6, .k = 1088};
    Case whole(K::Spec(), q), broken(K::Spec(), q);
    std::vector<float> row = test::RandomFloats(1088, 3);
    row[5] = value;
    broken.SetX(1, row);
    whole.ExpectRuns(&K::Run);
    broken.ExpectRuns(&K::Run);
    for (int j = 0; j < 6; ++j) {
      EXPECT_EQ(whole.y(0, j), broken.y(0, j));
      EXPECT_TRUE(std::isnan(broken.y(1, j)));
    }
  }
}

TEST(GemvInt8Norm, ALaunchAndItsKernelHaveTheSamePrologue) {
  using K = Normed<Type::kQ8_0, kNone, 1, 2, 2>;
  using Plain = test_int8::Kernel<Type::kBF16, Type::kQ8_0, kNone, 1, 2, 2, 3>;
  const Problem q{.m = 1, .n = 3, .k = 64};
  Case normed(K::Spec(), q), plain(Plain::Spec(), q);
  const auto refusal = [](const KernelSpec& spec, const GemmArgs& args) {
    const cuda::LaunchResult launch = GemvInt8Launch(spec, args, 132);
    return launch ? std::string() : launch.error().ToString();
  };
  const GemmArgs good = normed.Args();
  EXPECT_EQ(refusal(K::Spec(), good), "");
  EXPECT_THAT(refusal(Plain::Spec(), good), testing::HasSubstr("prologue rms_norm, needs none"));
  EXPECT_THAT(refusal(K::Spec(), plain.Args()), testing::HasSubstr("no prologue, needs rms_norm"));
  GemmArgs args = good;
  args.norm = static_cast<const char*>(args.norm) + 4;
  EXPECT_THAT(refusal(K::Spec(), args), testing::HasSubstr("a multiple of 16"));
  args = good;
  args.type_norm = DataType::kBF16;
  EXPECT_THAT(refusal(K::Spec(), args), testing::HasSubstr("norm of bf16"));
}

TEST(GemvInt8Norm, TheCatalogHasItForProductsOfOneToFourRowsLogitsOfTwoAndGatesOfOne) {
  for (const DataType weight : cuda::kBlockTypes) {
    const std::vector<KernelSpec> specs = GemvInt8Specs(weight, kHopper);
    const auto has = [&](int tile_m, SpecEpilogue epilogue, DataType d) {
      return std::ranges::any_of(specs, [&](const KernelSpec& spec) {
        return GemvNormalises(spec) && spec.tile_m == tile_m && spec.epilogue == epilogue &&
               spec.type_d == d;
      });
    };
    for (const int tile_m : {1, 2, 4}) {
      EXPECT_TRUE(has(tile_m, SpecEpilogue::kNone, DataType::kBF16));
      EXPECT_EQ(has(tile_m, SpecEpilogue::kNone, DataType::kF32), tile_m < 4);
    }
    EXPECT_TRUE(has(1, SpecEpilogue::kSwiGlu, DataType::kBF16));
    // The squares do not cost a stage of the ring.
    for (const KernelSpec& normed : specs) {
      if (!GemvNormalises(normed)) continue;
      const bool alike = std::ranges::any_of(specs, [&](const KernelSpec& spec) {
        return !GemvNormalises(spec) && spec.tile_m == normed.tile_m &&
               spec.tile_n == normed.tile_n && spec.stages == normed.stages;
      });
      EXPECT_TRUE(alike) << SpecName(normed);
    }
  }
}

}  // namespace
}  // namespace tilewright
