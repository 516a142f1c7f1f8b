#include <gtest/gtest.h>

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

TEST(MeasureTest, ReadBandwidthIsThatOfAMemory) {
  const auto pool = MakeThreadPool(DefaultThreads());
  const double gb_s = MeasureReadBandwidth(*pool);
  EXPECT_GT(gb_s, 0.2);
  EXPECT_LT(gb_s, 5000);
}

}  // namespace
}  // namespace tilewright
