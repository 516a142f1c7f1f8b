#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tilewright/device.h"

namespace tilewright {
namespace {

TEST(MeasureTest, TheMeasuredLastLevelCacheLiesBetweenTheL2AndTheReportedSize) {
  const DeviceSpec spec = DetectCpuCappedAt(Isa::kScalar);
  const auto pool = MakeThreadPool(2);
  const std::int64_t bytes = MeasureLlcBytes(*pool);
  RecordProperty("llc_mib", static_cast<int>(bytes >> 20));
  EXPECT_GE(bytes, std::min(spec.l2_bytes, spec.llc_bytes));
  EXPECT_LE(bytes, spec.llc_bytes);
}

/// GB/s of the plainest twin: one thread adds up 64 MiB. The best of three.
double PlainReadGbS() {
  std::vector<std::uint64_t> memory(std::size_t{8} << 20, 1);
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t sum = std::accumulate(memory.begin(), memory.end(), std::uint64_t{0});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(sum, memory.size());
    best = std::max(best, static_cast<double>(8 * memory.size()) * 1e-9 / took.count());
  }
  return best;
}

TEST(MeasureTest, ReadBandwidthIsThatOfAMemory) {
  const auto pool = MakeThreadPool(DefaultThreads());
  const double gb_s = MeasureReadBandwidth(*pool), plain = PlainReadGbS();
  EXPECT_GT(gb_s, plain / 20);
  // Unoptimised and instrumented builds slow the twin down, not the memory.
  EXPECT_LT(gb_s, plain * 1000 * DefaultThreads());
}

}  // namespace
}  // namespace tilewright
