// The cost model of the int8 kernels.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "ops/gemm/cpu/int8/test_kernels.h"

namespace tilewright {
namespace {

using test::DenseInt8Kernels;
using test::Int8Types;

TEST(GemmInt8Model, PredictsMoreTimeForMoreWorkAndPrefersTheFasterInstructionSet) {
  DeviceSpec device;
  device.cores = 2;
  for (const DataType type : Int8Types()) {
    GemmDesc p;
    p.m = 64, p.n = 960, p.k = 768, p.type_b = type;
    double last = 0;
    for (Kernel* kernel : DenseInt8Kernels()) {
      if (kernel->desc().type_a != Bit(p.type_a) || kernel->desc().type_b != Bit(type)) continue;
      const double us = kernel->EstimateUs(p, {.kernel = kernel}, device);
      EXPECT_GT(us, last) << kernel->name() << ": kernels are registered fastest first";
      last = us;
      GemmDesc more = p;
      more.m = 512;
      EXPECT_GT(kernel->EstimateUs(more, {.kernel = kernel}, device), us);
      more = p;
      more.n = 4096;
      EXPECT_GT(kernel->EstimateUs(more, {.kernel = kernel}, device), us);
    }
  }
}

TEST(GemmInt8Model, GivesOneRowThatWaitsForMemoryToTheBestInstructionSet) {
  DeviceSpec device;
  device.cores = 16, device.read_gb_s = 1;
  device.features = kFeatureAvx2 | kFeatureAvx512 | kFeatureAvx512Vnni;
  for (const DataType type : Int8Types()) {
    if (FindFormat(type)->scale == Factor::kPowerOfTwo) continue;
    GemmDesc p;
    p.m = 1, p.n = 16384, p.k = 2048, p.type_b = type;
    double best = 0, others = std::numeric_limits<double>::infinity();
    for (Kernel* kernel : DenseInt8Kernels()) {
      if (kernel->desc().type_a != Bit(p.type_a) || kernel->desc().type_b != Bit(type)) continue;
      const double us = kernel->EstimateUs(p, {.kernel = kernel}, device);
      if ((kernel->info().features & kFeatureAvx512Vnni) != 0) {
        best = us;
      } else {
        others = std::min(others, us);
      }
    }
    ASSERT_GT(best, 0) << DataTypeName(type);
    EXPECT_LT(best, others) << DataTypeName(type);
  }
}

}  // namespace
}  // namespace tilewright
