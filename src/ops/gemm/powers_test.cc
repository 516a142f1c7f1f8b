// Weights whose scales are powers of two, over all that a byte or an f16 can say.

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

constexpr int kPowers = 256;
constexpr int kLastFinite = 252;  // above it, the largest codes are infinite in f32

/// Weights of column c scaled by the c-th of some powers of two.
struct ScaledWeights {
  DataType type;
  int depth, columns;
  std::vector<std::uint8_t> blocks = {};

  MatrixLayout layout() const {
    return {.type = type, .order = Order::kColMajor, .rows = depth, .cols = columns, .ld = depth};
  }
};

/// put(block, column) sets the scales of every block, whose codes are random.
template <class Block, class Put>
ScaledWeights RandomCodes(int columns, Put put) {
  constexpr int kElements = Block::kFormat.elements;
  ScaledWeights weights{Block::kFormat.type, kElements == 32 ? 96 : kElements, columns};
  Random random(31);
  for (int column = 0; column < columns; ++column) {
    for (int i = 0; i < weights.depth / kElements; ++i) {
      Block block;
      std::uint8_t bytes[sizeof block];
      for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.Next() >> 56);
      std::memcpy(&block, bytes, sizeof block);
      put(block, column);
      std::memcpy(bytes, &block, sizeof block);
      weights.blocks.insert(weights.blocks.end(), bytes, bytes + sizeof block);
    }
  }
  return weights;
}

/// Rows that kernels which round them to int8 leave as they are: each 32 have a 127 among them. With
/// large weights they are small, so that results are finite and none vanishes.
std::vector<float> Rows(int m, int depth, int exponent) {
  Random random(32);
  std::vector<float> rows(static_cast<std::size_t>(m * depth));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double code = i % 32 == 5 ? 127 : random.Between(-127, 127);
    rows[i] = static_cast<float>(std::ldexp(code, exponent));
  }
  return rows;
}

/// What `kernel` computes of m rows `a` and `weights`, whose bytes are packed for it.
void Launch(Kernel& kernel, int m, const std::vector<float>& a, const ScaledWeights& weights,
            const void* packed, std::vector<float>& d) {
  const int depth = weights.depth, columns = weights.columns;
  d.assign(static_cast<std::size_t>(m * columns), NAN);
  GemmArgs args;
  args.a = a.data(), args.b = packed, args.d = d.data(), args.c = d.data();
  args.a_layout = {.type = DataType::kF32, .rows = m, .cols = depth, .ld = depth};
  args.b_layout = weights.layout();
  args.b_layout.pack = kernel.desc().pack_b;
  args.d_layout = {.type = DataType::kF32, .rows = m, .cols = columns, .ld = columns};
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

/// Compares a column with float64.
void ExpectColumn(const ScaledWeights& weights, int column, const std::vector<float>& a, int m,
                  const std::vector<float>& d) {
  const int depth = weights.depth;
  const std::size_t bytes = weights.blocks.size() / static_cast<std::size_t>(weights.columns);
  std::vector<double> w(static_cast<std::size_t>(depth));
  ASSERT_TRUE(DecodeRow(weights.type, &weights.blocks[bytes * static_cast<std::size_t>(column)],
                        depth, w.data()));
  for (int r = 0; r < m; ++r) {
    double want = 0, size = 0;
    for (int i = 0; i < depth; ++i) {
      const double term = static_cast<double>(a[static_cast<std::size_t>(r * depth + i)]) *
                          w[static_cast<std::size_t>(i)];
      want += term, size += std::fabs(term);
    }
    ASSERT_NEAR(d[static_cast<std::size_t>(r * weights.columns + column)], want, 1e-5 * size)
        << "power " << column << " row " << r;
  }
}

/// Of every kernel that takes `weights` the columns that first(kernel, large) to last(large) name, in the
/// products of rows times 2^30, and with `large` 2^-30.
template <class First, class Last>
void CheckAll(const ScaledWeights& weights, First first, Last last) {
  int checked = 0;
  std::vector<Kernel*> kernels = test::DenseKernels();
  for (Kernel* kernel : test::EmulatedKernels().kernels()) kernels.push_back(kernel);
  for (Kernel* kernel : kernels) {
    const KernelDesc& takes = kernel->desc();
    if ((takes.type_b & Bit(weights.type)) == 0 || (takes.type_a & Bit(DataType::kF32)) == 0 ||
        kernel->CheckDevice(test::Device()))
      continue;
    // It rounds weights to steps of their column's own, the smallest to zero: gemm_w8a8_test.
    if (takes.activations == Precision::kW8A8) continue;
    const bool packs = takes.pack_b != kPackPlain;
    test::GuardedBytes packed(packs ? kernel->PackedBytes(weights.layout()) : 0);
    if (packs) {
      ASSERT_TRUE(kernel->PackB(weights.blocks.data(), weights.layout(), packed.data(),
                                Stream{&test::Pool(2)}));
    }
    for (const int m : {1, 2, 3, 7}) {
      if (takes.max_m != 0 && m > takes.max_m) continue;
      for (const bool large : {false, true}) {
        SCOPED_TRACE(std::string(kernel->name()) + " m " + std::to_string(m));
        const std::vector<float> a = Rows(m, weights.depth, large ? -30 : 30);
        std::vector<float> d;
        ASSERT_NO_FATAL_FAILURE(
            Launch(*kernel, m, a, weights, packs ? packed.data() : weights.blocks.data(), d));
        for (int column = first(*kernel, large); column <= last(large); ++column)
          ASSERT_NO_FATAL_FAILURE(ExpectColumn(weights, column, a, m, d));
        ++checked;
      }
    }
  }
  EXPECT_GE(checked, 2 * 4);  // the portable one at least
}

TEST(PowersOfTwoTest, EveryKernelReadsThemFromTheSmallestToTheLargest) {
  const ScaledWeights weights = RandomCodes<BlockMxfp4>(
      kPowers, [](BlockMxfp4& block, int power) { block.e = static_cast<std::uint8_t>(power); });
  // To tiles of AMX a number below 2^-126 is zero, and so is half of what the first two can say. With
  // large weights the first half vanishes, and with the others the second overflows.
  const auto first = [](const Kernel& kernel, bool large) {
    if (large) return kPowers / 2;
    return kernel.name().find(".amx.") == std::string_view::npos ? 0 : 2;
  };
  const auto last = [](bool large) { return large ? kLastFinite : kPowers / 2 - 1; };
  CheckAll(weights, first, last);
}

// Tiles take values below 2^-126 as zero, and the way to them through f16 ends at 65,504: neither shows.
TEST(F16ScaleTest, EveryKernelReadsThemFromTheSmallestToTheLargest) {
  // 2^-24, the smallest, to 2^15, each for a panel of its own: one that is too large sends all of its panel
  // another way.
  constexpr int kPanel = 16, kColumns = 40 * kPanel;
  const auto power = [](int column) { return F32ToF16(std::ldexp(1.0f, column / kPanel - 24)); };
  const auto scale = [&](auto& block, int column) { block.d = power(column); };
  const auto scale_and_min = [&](auto& block, int column) {
    block.d = power(column), block.m = power(column) | 0x8000;
  };
  const ScaledWeights all[] = {RandomCodes<BlockQ4_0>(kColumns, scale),
                               RandomCodes<BlockQ4_1>(kColumns, scale_and_min),
                               RandomCodes<BlockQ5_0>(kColumns, scale),
                               RandomCodes<BlockQ5_1>(kColumns, scale_and_min),
                               RandomCodes<BlockQ8_0>(kColumns, scale),
                               RandomCodes<BlockQ6_K>(kColumns, [&](BlockQ6_K& block, int column) {
                                 scale(block, column);
                                 for (int i = 0; i < 16; ++i)
                                   block.scales[i] = static_cast<std::int8_t>(1 << i % 7);
                               })};
  for (const ScaledWeights& weights : all) {
    SCOPED_TRACE(DataTypeName(weights.type));
    CheckAll(
        weights, [](const Kernel&, bool) { return 0; }, [](bool) { return kColumns - 1; });
  }
}

}  // namespace
}  // namespace tilewright
