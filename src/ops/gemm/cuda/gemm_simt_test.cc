#include "device/cuda/kernels/launch_emulation.h"
// After it: the kernel uses its built-ins.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_launch.h"
#include "ops/gemm/cuda/gemm_simt_kernel.cuh"
#include "ops/gemm/cuda/kernel_test_util.h"

// The source of the kernel, run on the CPU as GemmSimtLaunch launches it.

namespace tilewright {
namespace {

using tw::Type;

template <int kM, int kN, int kK, int kWarpCount, int kRowCount, int kColCount,
          Type kA = Type::kF32, Type kB = Type::kF32, Type kOut = Type::kF32, bool kAdds = true>
struct Spec {
  static constexpr Type kTypeA = kA;
  static constexpr Type kTypeB = kB;
  static constexpr Type kTypeC = kAdds ? kOut : Type::kNone;
  static constexpr Type kTypeD = kOut;
  static constexpr bool kRowMajorA = true;
  static constexpr bool kRowMajorB = false;
  static constexpr int kTileM = kM;
  static constexpr int kTileN = kN;
  static constexpr int kTileK = kK;
  static constexpr int kWarps = kWarpCount;
  static constexpr int kStages = 0;
  static constexpr int kRows = kRowCount;
  static constexpr int kCols = kColCount;
};
template <Type kA, Type kB, Type kOut>
using Few = Spec<8, 32, 32, 4, 2, 1, kA, kB, kOut>;

template <class S>
void Launch(const GemmArgs& args) {
  KernelSpec spec = SpecOf<S>("gemm_simt", {80, 0});
  spec.tile_k = S::kTileK;
  spec.params = {S::kRows, S::kCols, 0, 0};
  ASSERT_EQ(GemmSimtFamily().check(spec), std::nullopt) << SpecName(spec);
  const cuda::LaunchResult launch = GemmSimtLaunch(spec, args);
  ASSERT_TRUE(launch) << launch.error().ToString();
  const bool ran = tw::emulation::RunLaunch<tw::GemmMmaParams>(
      *launch, 32 * S::kWarps, [](const tw::GemmMmaParams& params) { tw::GemmSimt<S>(params); });
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
}

template <class S>
void ExpectProduct(const TestShape& shape) {
  TestProduct<S> product(shape);
  Launch<S>(product.Args());
  product.Expect();
}

template <class S>
void ExpectProducts() {
  ExpectProduct<S>({1, 1, 1});
  ExpectProduct<S>({S::kTileM, S::kTileN, S::kTileK});
  ExpectProduct<S>({S::kTileM + 1, S::kTileN - 1, S::kTileK + 3});
  ExpectProduct<S>({.m = S::kTileM - 3, .n = 2 * S::kTileN + 9, .k = S::kTileK - 1, .pad = 8});
  ExpectProduct<S>({.m = S::kTileM + 5, .n = S::kTileN + 3, .k = 2 * S::kTileK + 5, .odd = true});
  if (S::kTypeC == S::kTypeD) ExpectProduct<S>({.m = 9, .n = 35, .k = 40, .in_place = true});
}

TEST(GemmSimtKernel, MultipliesWithBothTilesOfTheCatalog) {
  ExpectProducts<Spec<64, 64, 32, 8, 4, 4>>();
  ExpectProducts<Spec<8, 32, 32, 4, 2, 1>>();
}

TEST(GemmSimtKernel, MultipliesOperandsOfEveryPairOfTypes) {
  ExpectProducts<Few<Type::kF32, Type::kBF16, Type::kF32>>();
  ExpectProducts<Few<Type::kF32, Type::kF16, Type::kF32>>();
  ExpectProducts<Few<Type::kBF16, Type::kF32, Type::kBF16>>();
  ExpectProducts<Few<Type::kBF16, Type::kF16, Type::kF32>>();
  ExpectProducts<Few<Type::kF16, Type::kBF16, Type::kF16>>();
  ExpectProducts<Few<Type::kF16, Type::kF32, Type::kF32>>();
}

TEST(GemmSimtKernel, HasKernelsWithoutAnAddend) {
  ExpectProducts<Spec<16, 32, 16, 2, 4, 2, Type::kBF16, Type::kBF16, Type::kBF16, false>>();
}

TEST(GemmSimtKernel, DoesNotReadCWhenBetaIsZero) {
  using S = Few<Type::kF32, Type::kF32, Type::kF32>;
  TestProduct<S> product({3, 5, 7});
  GemmArgs args = product.Args();
  args.beta = 0;
  args.c = nullptr;
  Launch<S>(args);
  EXPECT_EQ(product.d.bytes.Damage(), "");
  for (const double value : product.d.Decode()) EXPECT_EQ(value, value);
}

TEST(GemmSimtKernel, ARowHasTheSameBitsInEveryTileAndBatch) {
  using Many = Spec<64, 64, 32, 8, 4, 4, Type::kBF16>;
  using Few = Spec<8, 32, 32, 4, 2, 1, Type::kBF16>;
  constexpr int kM = 70, kN = 40, kK = 333;
  std::vector<float> b = test::RandomFloats(kN * kK, 5);
  std::vector<std::uint16_t> a(kM * kK);
  const std::vector<float> values = test::RandomFloats(a.size(), 6);
  std::transform(values.begin(), values.end(), a.begin(), [](float v) { return tw::F32ToBF16(v); });
  const auto product = [&](auto launch, int first, int rows) {
    std::vector<float> d(static_cast<std::size_t>(rows) * kN);
    GemmArgs args;
    args.a = a.data() + first * kK, args.b = b.data(), args.d = d.data();
    args.a_layout = {.type = DataType::kBF16, .rows = rows, .cols = kK, .ld = kK};
    args.b_layout = {.order = Order::kColMajor, .rows = kK, .cols = kN, .ld = kK};
    args.d_layout = {.rows = rows, .cols = kN, .ld = kN};
    launch(args);
    return d;
  };
  const std::vector<float> all = product(&Launch<Many>, 0, kM);
  for (const int row : {0, 1, 63, 69}) {
    const std::vector<float> alone = product(&Launch<Few>, row, 1);
    EXPECT_EQ(std::memcmp(alone.data(), &all[row * kN], kN * sizeof(float)), 0) << row;
  }
}

TEST(GemmSimtFamily, RefusesWhatNoKernelIsMadeFor) {
  const KernelFamily family = GemmSimtFamily();
  const std::vector<KernelSpec> specs = family.catalog({90, 'a'});
  ASSERT_EQ(specs.size(), 2u * (3 + 6 + 6));
  for (const KernelSpec& spec : specs) {
    EXPECT_EQ(family.check(spec), std::nullopt) << SpecName(spec);
    EXPECT_EQ(std::count(specs.begin(), specs.end(), spec), 1);
  }
  const auto refused = [&](auto change) {
    KernelSpec spec = specs.front();
    change(spec);
    const auto no = family.check(spec);
    return no ? no->reason : Reason::kProvider;
  };
  EXPECT_EQ(refused([](KernelSpec& s) { s.type_b = DataType::kQ8_0; }), Reason::kType);
  EXPECT_EQ(refused([](KernelSpec& s) { s.type_c = DataType::kNone; }), Reason::kType);
  EXPECT_EQ(refused([](KernelSpec& s) { s.order_b = Order::kRowMajor; }), Reason::kOrder);
  EXPECT_EQ(refused([](KernelSpec& s) { s.warps = 4; }), Reason::kShape);
  EXPECT_EQ(refused([](KernelSpec& s) { s.stages = 2; }), Reason::kShape);
  EXPECT_EQ(refused([](KernelSpec& s) { s.arch = {75, 0}; }), Reason::kDevice);
  EXPECT_TRUE(family.catalog({75, 0}).empty());
}

}  // namespace
}  // namespace tilewright
