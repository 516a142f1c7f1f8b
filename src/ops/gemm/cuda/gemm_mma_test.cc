#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/mma_emulation.h"
// After it: the kernel uses its built-ins.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_launch.h"
#include "ops/gemm/cuda/gemm_mma_kernel.cuh"
#include "ops/gemm/cuda/gemm_mma_splits.h"
#include "ops/gemm/cuda/kernel_test_util.h"

// The source of the kernel, run on the CPU as GemmMmaLaunch launches it.

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

DeviceSpec DeviceOf(int sms) {
  DeviceSpec device;
  device.kind = DeviceKind::kCuda;
  device.sm_count = sms;
  return device;
}

/// Launches the kernel of `S` on a device of `sms` multiprocessors, which ask for as many splits of k.
template <class S>
void Launch(const GemmArgs& args, int sms = 1, int splits = 1) {
  KernelSpec spec = SpecOf<S>("gemm_mma", {80, 0});
  spec.tile_k = S::kTileK;
  spec.params = {S::kWarpsM, S::kBand, 0, 0};
  ASSERT_EQ(GemmMmaFamily().check(spec), std::nullopt) << SpecName(spec);
  const DeviceSpec device = DeviceOf(sms);
  const GemmShape shape{.m = args.d_layout.rows, .n = args.d_layout.cols, .k = args.a_layout.cols};
  ASSERT_EQ(GemmMmaSplits(spec, shape, device), splits);
  const WorkspaceSize size = GemmMmaWorkspace(spec, shape, device);
  test::GuardedBytes partials(size.partials), barriers(size.barriers);
  std::fill_n(static_cast<std::byte*>(barriers.data()), size.barriers, std::byte{0});
  Workspace workspace;
  workspace.partials = partials.data();
  workspace.partials_size = size.partials;
  workspace.barriers = barriers.data();
  workspace.barriers_size = size.barriers;
  const cuda::LaunchResult launch = GemmMmaLaunch(spec, args, device, workspace);
  ASSERT_TRUE(launch) << launch.error().ToString();
  const bool ran = tw::emulation::RunLaunch<tw::GemmMmaParams>(
      *launch, 32 * S::kWarps,
      [](const tw::GemmMmaParams& params) { tw::GemmMma<S>(params, tw::emulation::smem); });
  EXPECT_TRUE(ran) << "a launch that a GPU refuses, or a hang";
  EXPECT_FALSE(tw::emulation::fault) << "an illegal access";
  EXPECT_EQ(partials.Damage() + barriers.Damage(), "");
  const auto* counters = static_cast<const std::byte*>(barriers.data());
  EXPECT_TRUE(std::all_of(counters, counters + size.barriers, [](std::byte b) {
    return b == std::byte{0};
  })) << "counters are left at zero";
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

template <class S>
void ExpectSplitProduct(const TestShape& shape, int sms, int splits) {
  TestProduct<S> product(shape);
  Launch<S>(product.Args(), sms, splits);
  product.Expect();
}

TEST(GemmMmaKernel, SharesTilesByPartsOfK) {
  using Small = Spec<kT, kN, 16, 32, 32, 2, 1, 3>;
  ExpectSplitProduct<Small>({16, 32, 1024}, 4, 4);
  ExpectSplitProduct<Small>({5, 9, 1000}, 4, 4);
  ExpectSplitProduct<Small>({19, 40, 1031}, 12, 3);
  ExpectSplitProduct<Small>({.m = 17, .n = 33, .k = 1031, .odd = true}, 8, 2);
  ExpectSplitProduct<Spec<kN, kT, 16, 32, 32, 2, 1, 3>>({19, 40, 1031}, 12, 3);
  ExpectSplitProduct<Spec<kT, kT, 32, 64, 64, 4, 2, 3>>({33, 70, 1500}, 12, 3);
  ExpectSplitProduct<Spec<kT, kN, 32, 64, 32, 4, 2, 2, Type::kBF16, Type::kBF16, Type::kBF16>>(
      {.m = 33, .n = 67, .k = 1000, .in_place = true}, 16, 4);
  ExpectSplitProduct<Spec<kT, kN, 16, 64, 64, 4, 1, 6, Type::kBF16, Type::kNone, Type::kF32>>(
      {3, 100, 2000}, 10, 5);
}

TEST(GemmMmaKernel, DoesNotReadCWhenBetaIsZero) {
  using S = Spec<kT, kN, 16, 16, 32, 1, 1, 2, Type::kBF16, Type::kBF16, Type::kBF16>;
  TestMatrix a(Type::kBF16, 16, 32, 32, 0), b(Type::kBF16, 16, 32, 32, 0),
      d(Type::kBF16, 16, 16, 16, 0);
  a.Fill(1);
  b.Fill(2);
  GemmArgs args;
  args.a = a.bytes.data();
  args.b = b.bytes.data();
  args.d = d.bytes.data();
  args.a_layout = {.type = DataType::kBF16, .rows = 16, .cols = 32, .ld = 32};
  args.b_layout = {
      .type = DataType::kBF16, .order = Order::kColMajor, .rows = 32, .cols = 16, .ld = 32};
  args.d_layout = {.type = DataType::kBF16, .rows = 16, .cols = 16, .ld = 16};
  Launch<S>(args);
  const std::vector<double> x = a.Decode();
  const std::vector<double> y = b.Decode();
  double sum = 0;
  for (int q = 0; q < 32; ++q) sum += x[q] * y[q];
  EXPECT_EQ(d.Decode()[0], sum);
}

}  // namespace
}  // namespace tilewright
