// Weights whose scales are powers of two, over all that a byte can say.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/block_format.h"
#include "core/formats/formats.h"
#include "core/random.h"
#include "ops/gemm/test_problem.h"
#include "ops/gemm/test_registry.h"
#include "tilewright/gemm_stages.h"

namespace tilewright {
namespace {

constexpr int kDepth = 96, kPowers = 256;
constexpr int kLastFinite = 252;  // above it, the largest codes are infinite in f32

/// Column e has the scale of the byte e in all blocks, and random codes.
std::vector<BlockMxfp4> EveryPower() {
  Random random(31);
  std::vector<BlockMxfp4> blocks(kPowers * kDepth / 32);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].e = static_cast<std::uint8_t>(i / (kDepth / 32));
    for (std::uint8_t& pair : blocks[i].qs) pair = static_cast<std::uint8_t>(random.Next() >> 56);
  }
  return blocks;
}

/// Rows that kernels which round them to int8 leave as they are: each 32 have a 127 among them. With
/// large weights they are small, so that results are finite and none vanishes.
std::vector<float> Rows(int m, int exponent) {
  Random random(32);
  std::vector<float> rows(static_cast<std::size_t>(m * kDepth));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double code = i % 32 == 5 ? 127 : random.Between(-127, 127);
    rows[i] = static_cast<float>(std::ldexp(code, exponent));
  }
  return rows;
}

constexpr MatrixLayout kWeights{.type = DataType::kMXFP4,
                                .order = Order::kColMajor,
                                .rows = kDepth,
                                .cols = kPowers,
                                .ld = kDepth};

/// What `kernel` computes of m rows `a` and weights that are packed for it.
void Launch(Kernel& kernel, int m, const std::vector<float>& a, const void* weights,
            std::vector<float>& d) {
  d.assign(static_cast<std::size_t>(m * kPowers), NAN);
  GemmArgs args;
  args.a = a.data(), args.b = weights, args.d = d.data(), args.c = d.data();
  args.a_layout = {.type = DataType::kF32, .rows = m, .cols = kDepth, .ld = kDepth};
  args.b_layout = kWeights;
  args.b_layout.pack = kernel.desc().pack_b;
  args.d_layout = {.type = DataType::kF32, .rows = m, .cols = kPowers, .ld = kPowers};
  args.c_layout = args.d_layout;
  const GemmDesc desc = DescOf(args, {.activations = kernel.desc().activations}).value();
  const auto no = kernel.IsFeasible(desc);
  ASSERT_FALSE(no) << no->ToString();
  LaunchSpec spec;
  spec.kernel = &kernel;
  DeviceSpec device;
  device.cores = 2;
  test::GuardedBytes partials(kernel.PartialsBytes(desc, spec, device));
  Workspace workspace;
  workspace.partials = partials.data(), workspace.partials_size = partials.size();
  ASSERT_TRUE(kernel.Launch(args, spec, workspace, Stream{&test::Pool(2)}));
}

/// Compares the column of the power e with float64.
void ExpectColumn(const std::vector<BlockMxfp4>& blocks, int e, const std::vector<float>& a, int m,
                  const std::vector<float>& d) {
  std::vector<double> w(kDepth);
  ASSERT_TRUE(DecodeRow(DataType::kMXFP4, &blocks[static_cast<std::size_t>(e * kDepth / 32)],
                        kDepth, w.data()));
  for (int r = 0; r < m; ++r) {
    double want = 0, size = 0;
    for (int i = 0; i < kDepth; ++i) {
      const double term = static_cast<double>(a[static_cast<std::size_t>(r * kDepth + i)]) *
                          w[static_cast<std::size_t>(i)];
      want += term, size += std::fabs(term);
    }
    ASSERT_NEAR(d[static_cast<std::size_t>(r * kPowers + e)], want, 1e-5 * size)
        << "power " << e << " row " << r;
  }
}

TEST(PowersOfTwoTest, EveryKernelReadsThemFromTheSmallestToTheLargest) {
  const std::vector<BlockMxfp4> blocks = EveryPower();
  int checked = 0;
  std::vector<Kernel*> kernels = test::DenseKernels();
  for (Kernel* kernel : test::EmulatedKernels().kernels()) kernels.push_back(kernel);
  for (Kernel* kernel : kernels) {
    const KernelDesc& takes = kernel->desc();
    // To tiles of AMX a number below 2^-126 is zero, and so is half of what these two can say.
    const int least = kernel->name().find(".amx.") == std::string_view::npos ? 0 : 2;
    if ((takes.type_b & Bit(DataType::kMXFP4)) == 0 || (takes.type_a & Bit(DataType::kF32)) == 0 ||
        kernel->CheckDevice(test::Device()))
      continue;
    // It rounds weights to steps of their column's own, the smallest to zero: gemm_w8a8_test.
    if (takes.activations == Precision::kW8A8) continue;
    const bool packs = takes.pack_b != kPackPlain;
    test::GuardedBytes packed(packs ? kernel->PackedBytes(kWeights) : 0);
    if (packs) {
      ASSERT_TRUE(kernel->PackB(blocks.data(), kWeights, packed.data(), Stream{&test::Pool(2)}));
    }
    for (const int m : {1, 2, 3, 7}) {
      if (takes.max_m != 0 && m > takes.max_m) continue;
      for (const bool large : {false, true}) {
        SCOPED_TRACE(std::string(kernel->name()) + " m " + std::to_string(m));
        const std::vector<float> a = Rows(m, large ? -30 : 30);
        std::vector<float> d;
        ASSERT_NO_FATAL_FAILURE(Launch(*kernel, m, a, packs ? packed.data() : blocks.data(), d));
        // The other half overflows or vanishes.
        for (int e = large ? kPowers / 2 : least; e <= (large ? kLastFinite : kPowers / 2 - 1); ++e)
          ASSERT_NO_FATAL_FAILURE(ExpectColumn(blocks, e, a, m, d));
        ++checked;
      }
    }
  }
  EXPECT_GE(checked, 2 * 4);  // the portable one at least
}

}  // namespace
}  // namespace tilewright
