#include "device/cuda/kernels/mma_emulation.h"
// After it: the kernel uses its built-ins.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "ops/gemm/cuda/gemm_mma_kernel.cuh"
#include "ops/gemm/cuda/kernel_test_util.h"

// The source of the kernel, run on the CPU.

namespace tilewright {
namespace {

using tw::Type;

template <bool kRowA, bool kRowB, int kM, int kN, int kK, int kWarpCount, int kRowWarps,
          int kStageCount, Type kIn = Type::kBF16, Type kAddend = Type::kNone,
          Type kOut = Type::kBF16>
struct Spec {
  static constexpr Type kTypeA = kIn;
  static constexpr Type kTypeC = kAddend;
  static constexpr Type kTypeD = kOut;
  static constexpr bool kRowMajorA = kRowA;
  static constexpr bool kRowMajorB = kRowB;
  static constexpr int kTileM = kM;
  static constexpr int kTileN = kN;
  static constexpr int kTileK = kK;
  static constexpr int kWarps = kWarpCount;
  static constexpr int kStages = kStageCount;
  static constexpr int kWarpsM = kRowWarps;
  static constexpr int kBand = 2;
};

template <class S>
void ExpectProduct(const TestShape& shape) {
  TestProduct<S> product(shape);
  const tw::GemmMmaParams params{product.a.bytes.data(), product.b.bytes.data(), product.a.ld,
                                 product.b.ld, product.Output()};
  tw::emulation::fault = false;
  std::fill(std::begin(tw::emulation::smem), std::end(tw::emulation::smem), tw::u8{0xff});
  EXPECT_TRUE(tw::emulation::Run({product.Tiles(S::kTileM, S::kTileN), 1, 1}, 32 * S::kWarps,
                                 [&] { tw::GemmMma<S>(params, tw::emulation::smem); }));
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access";
  product.Expect();
}

template <class S>
void ExpectProducts() {
  ExpectProduct<S>({1, 1, 1});
  ExpectProduct<S>({S::kTileM, S::kTileN, S::kTileK});
  ExpectProduct<S>({S::kTileM + 1, S::kTileN - 1, S::kTileK * S::kStages + 3});
  ExpectProduct<S>({S::kTileM - 3, 2 * S::kTileN + 9, S::kTileK - 1, 8});
  ExpectProduct<S>({3 * S::kTileM - 8, S::kTileN + 8, 2 * S::kTileK + 8, 16});
  ExpectProduct<S>({.m = S::kTileM + 5, .n = S::kTileN + 3, .k = S::kTileK + 5, .odd = true});
}

constexpr bool kT = true;   // row-major
constexpr bool kN = false;  // column-major

TEST(GemmMmaKernel, MultipliesInEveryLayout) {
  ExpectProducts<Spec<kT, kN, 32, 64, 32, 4, 2, 3>>();
  ExpectProducts<Spec<kN, kT, 32, 64, 32, 4, 2, 3>>();
  ExpectProducts<Spec<kN, kN, 32, 64, 32, 4, 2, 3>>();
  ExpectProducts<Spec<kT, kT, 32, 64, 32, 4, 2, 3>>();
}

// Every width of line there is in the catalog, with more and fewer chunks than threads a line.
TEST(GemmMmaKernel, MultipliesWithTilesOfEveryWidth) {
  ExpectProducts<Spec<kT, kN, 16, 64, 64, 4, 1, 6>>();
  ExpectProducts<Spec<kN, kT, 16, 64, 64, 4, 1, 6>>();
  ExpectProducts<Spec<kN, kT, 16, 32, 64, 1, 1, 2>>();
  ExpectProducts<Spec<kN, kT, 32, 128, 64, 4, 1, 2>>();
  ExpectProducts<Spec<kT, kN, 16, 16, 128, 1, 1, 2>>();
}

TEST(GemmMmaKernel, MultipliesWithTheLargeTiles) {
  using Wide = Spec<kT, kN, 128, 128, 32, 4, 2, 4>;
  ExpectProduct<Wide>({130, 120, 37});
  ExpectProduct<Spec<kN, kT, 128, 128, 32, 8, 2, 3>>({120, 136, 40});
  ExpectProduct<Spec<kN, kT, 128, 64, 64, 4, 2, 3>>({129, 72, 72});
}

TEST(GemmMmaKernel, TakesAndGivesOtherTypes) {
  ExpectProducts<Spec<kT, kN, 32, 64, 32, 4, 2, 2, Type::kF16, Type::kNone, Type::kF16>>();
  ExpectProducts<Spec<kT, kN, 32, 64, 32, 4, 2, 2, Type::kBF16, Type::kNone, Type::kF32>>();
}

TEST(GemmMmaKernel, AddsC) {
  using Same = Spec<kT, kN, 32, 64, 32, 4, 2, 2, Type::kBF16, Type::kBF16, Type::kBF16>;
  ExpectProducts<Same>();
  ExpectProduct<Same>({.m = 40, .n = 72, .k = 40, .in_place = true});
  ExpectProduct<Same>({.m = 33, .n = 67, .k = 40, .odd = true, .in_place = true});
  ExpectProducts<Spec<kT, kN, 32, 64, 32, 4, 2, 2, Type::kF16, Type::kF32, Type::kF16>>();
}

TEST(GemmMmaKernel, DoesNotReadCWhenBetaIsZero) {
  using S = Spec<kT, kN, 16, 16, 32, 1, 1, 2, Type::kBF16, Type::kBF16, Type::kBF16>;
  TestMatrix a(Type::kBF16, 16, 32, 32, 0), b(Type::kBF16, 16, 32, 32, 0),
      d(Type::kBF16, 16, 16, 16, 0);
  a.Fill(1);
  b.Fill(2);
  const tw::GemmMmaParams params{a.bytes.data(),
                                 b.bytes.data(),
                                 32,
                                 32,
                                 {nullptr, d.bytes.data(), 0, 16, 16, 16, 32, 1.0f, 0.0f, 0}};
  EXPECT_TRUE(
      tw::emulation::Run({1, 1, 1}, 32, [&] { tw::GemmMma<S>(params, tw::emulation::smem); }));
  const std::vector<double> x = a.Decode();
  const std::vector<double> y = b.Decode();
  double sum = 0;
  for (int q = 0; q < 32; ++q) sum += x[q] * y[q];
  EXPECT_EQ(d.Decode()[0], sum);
}

}  // namespace
}  // namespace tilewright
