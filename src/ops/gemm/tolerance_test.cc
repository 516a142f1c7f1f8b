// The bound of CheckGemm: no right kernel passes it, and it is not far above what one can reach.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/numeric.h"
#include "ops/gemm/reference.h"
#include "ops/gemm/test_problem.h"
#include "ops/gemm/test_registry.h"

namespace tilewright {
namespace {

using test::AllKernels;
using test::Device;
using test::Pool;
using test::TestProblem;

TEST(Tolerance, HoldsForBF16ActivationsWhoseRoundingsAgree) {
  // Seeds where the roundings of one element point the same way more often than chance would like.
  int kernels = 0;
  for (Kernel* kernel : AllKernels().kernels()) {
    const KernelDesc& desc = kernel->desc();
    if (desc.activations != Precision::kBF16 || (desc.type_b & Bit(DataType::kBF16)) == 0) continue;
    if (kernel->CheckDevice(Device())) continue;
    ++kernels;
    GemmDesc d;
    d.m = 13, d.n = 45, d.k = 274;
    d.type_b = DataType::kBF16;
    d.precision = Precision::kBF16;
    test::CallOptions o;
    o.seed = 2772082331;
    TestProblem problem(d, o);
    EXPECT_EQ(problem.RunAndCheck(*kernel, {}, Pool(2)), "") << kernel->name();
  }
  if (kernels == 0) GTEST_SKIP() << "no kernel here rounds to bf16";
}

// One row of `a` times one column of `b`, f32, and a D that is `d`: how far it is in units of the
// bound.
double ErrorOf(std::vector<float> a, std::vector<float> b, double d, Precision activations) {
  const auto k = static_cast<std::int32_t>(a.size());
  const auto result = static_cast<float>(d);
  float out = result;
  GemmArgs args;
  args.a = a.data(), args.b = b.data(), args.d = &out;
  args.a_layout = {.rows = 1, .cols = k, .ld = k};
  args.b_layout = {.order = Order::kColMajor, .rows = k, .cols = 1, .ld = k};
  args.d_layout = {.rows = 1, .cols = 1, .ld = 1};
  GemmDesc desc;
  desc.m = desc.n = 1, desc.k = k;
  return CheckGemm(args, desc, {.activations = activations})->worst;
}

TEST(Tolerance, TheWorstRoundingToBF16ReachesTheBoundAndDoesNotPassIt) {
  // 1 + 2^-8 lies in the middle between 1 and the next bf16: each is off by 2^-8 towards 1.
  for (const int k : {1, 64, 1000}) {
    const auto count = static_cast<std::size_t>(k);
    const std::vector<float> a(count, 1 + 0x1p-8f), b(count, 1.0f);
    ASSERT_EQ(BF16ToF32(F32ToBF16(a[0])), 1.0f);
    const double error = ErrorOf(a, b, k, Precision::kBF16);
    EXPECT_LE(error, 1) << "k = " << k;
    EXPECT_GT(error, 0.98) << "k = " << k;
    EXPECT_GT(ErrorOf(a, b, k * (1 - 0x1p-8), Precision::kBF16), 1.9);
  }
}

TEST(Tolerance, TheWorstRoundingToInt8ReachesTheBoundAndDoesNotPassIt) {
  // Blocks of 32 with a largest of 127 are rounded in steps of 1; all else lies between two steps.
  for (const int blocks : {1, 3, 30}) {
    std::vector<float> a, b;
    double rounded = 0;
    for (int block = 0; block < blocks; ++block) {
      const auto size = static_cast<float>(1 << (block % 5));  // every block has steps of its own
      for (int i = 0; i < 32; ++i) {
        a.push_back(i == 7 ? 127 * size : 4.5f * size);
        b.push_back(i == 7 ? 0.0f : (i % 3 == 0 ? -1.0f : 1.0f));
        // Down where the weight is positive, up where it is negative.
        if (i != 7) rounded += b.back() * (b.back() > 0 ? 4 : 5) * size;
      }
    }
    const double error = ErrorOf(a, b, rounded, Precision::kI8);
    EXPECT_LE(error, 1) << blocks << " blocks";
    EXPECT_GT(error, 0.98) << blocks << " blocks";
  }
}

TEST(Tolerance, Int8BlocksAreBoundedByTheirOwnLargestActivation) {
  // The second block holds small values beside weights that are 1: an error of a step of the first
  // block's size has no excuse there.
  std::vector<float> a(64, 0.01f), b(64, 1.0f);
  a[0] = 127.0f, b[0] = 0.0f;
  for (int i = 0; i < 32; ++i) b[static_cast<std::size_t>(i)] = 0.0f;
  EXPECT_LE(ErrorOf(a, b, 32 * 0.01f, Precision::kI8), 0.01);
  EXPECT_GT(ErrorOf(a, b, 32 * 0.01f + 0.5f, Precision::kI8), 100);
}

TEST(Tolerance, HoldsForEveryInt8KernelOnActivationsThatAllLieBetweenTwoSteps) {
  int kernels = 0;
  for (Kernel* kernel : test::DenseKernels()) {
    const KernelDesc& desc = kernel->desc();
    if (desc.activations != Precision::kI8 || kernel->CheckDevice(Device())) continue;
    ++kernels;
    GemmDesc d;
    d.m = 3, d.n = 50, d.k = 512;
    d.type_b = test::First<DataType>(desc.type_b);
    d.precision = Precision::kI8;
    TestProblem problem(d, {});
    auto* a = const_cast<float*>(static_cast<const float*>(problem.args().a));
    for (int i = 0; i < d.m * d.k; ++i)
      a[i] = i % 32 == 0 ? 127.0f : static_cast<float>(i * 7 % 5) + 0.5f;
    EXPECT_EQ(problem.RunAndCheck(*kernel, {}, Pool(2)), "") << kernel->name();
  }
  if (kernels == 0) GTEST_SKIP() << "no kernel here rounds to int8";
}

TEST(Tolerance, AGatedResultIsBoundedThroughBothOfItsFactors) {
  // k = 32, one block: gate and up are both off by as much as the rounding allows.
  const int k = 32;
  std::vector<float> a(k, 4.5f), b(static_cast<std::size_t>(k) * 32, 0.0f), d(16, 0.0f);
  a[0] = 127.0f;
  for (int c = 0; c < 32; ++c) {
    for (int i = 1; i < k; ++i) b[static_cast<std::size_t>(c * k + i)] = 0.02f;
  }
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const double low = 31 * 4.0 * 0.02f, high = 31 * 5.0 * 0.02f;
  for (const double off : {low, high}) {
    for (float& value : d) value = static_cast<float>(silu(off) * off);
    GemmArgs args;
    args.a = a.data(), args.b = b.data(), args.d = d.data();
    args.a_layout = {.rows = 1, .cols = k, .ld = k};
    args.b_layout = {.order = Order::kColMajor, .rows = k, .cols = 32, .ld = k};
    args.d_layout = {.rows = 1, .cols = 16, .ld = 16};
    GemmDesc desc;
    desc.m = 1, desc.n = 32, desc.k = k;
    desc.epilogue = Epilogue::kGatedSilu;
    EXPECT_LE(CheckGemm(args, desc, {.activations = Precision::kI8})->worst, 1);
    EXPECT_GT(CheckGemm(args, desc, {.activations = Precision::kI8})->worst, 0.5);
    EXPECT_GT(CheckGemm(args, desc, {})->worst, 1);
  }
}

}  // namespace
}  // namespace tilewright
