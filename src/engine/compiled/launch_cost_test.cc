#include "engine/compiled/launch_cost.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

DeviceSpec Board() {
  DeviceSpec board;
  board.kind = DeviceKind::kCuda;
  board.sm_count = 100;
  board.read_gb_s = 4000;
  return board;
}

double Us(const LaunchCost& cost) { return PredictUs(cost, Board()); }
const double kNothing = Us({});

TEST(LaunchCost, BytesTakeTheirTimeOnTheBus) {
  // 4 GB/ms: 4 MB take a microsecond.
  EXPECT_NEAR(Us({.memory_bytes = 4e6, .ctas = 1000}) - kNothing, 1, 1e-9);
  EXPECT_NEAR(Us({.memory_bytes = 4e7, .ctas = 1000}) - kNothing, 10, 1e-9);
}

TEST(LaunchCost, FewBytesOnTheirWayDoNotFillTheBus) {
  // 0.6 us of the bus are 2.4 MB: 24 KB on each of 100 multiprocessors.
  const LaunchCost full{.memory_bytes = 4e7, .in_flight_bytes = 24e3, .ctas = 100};
  EXPECT_NEAR(Us(full) - kNothing, 10, 1e-9);
  LaunchCost half = full;
  half.in_flight_bytes = 12e3;
  EXPECT_NEAR(Us(half) - kNothing, 20, 1e-9);
  half.ctas = 200, half.ctas_per_sm = 2;
  EXPECT_NEAR(Us(half) - kNothing, 10, 1e-9);
  LaunchCost few = full;
  few.ctas = 10;
  EXPECT_NEAR(Us(few) - kNothing, 100, 1e-9);
}

TEST(LaunchCost, AnIncompleteRoundTakesAWholeOne) {
  EXPECT_NEAR(Us({.cta_us = 5, .ctas = 1}) - kNothing, 5, 1e-9);
  EXPECT_NEAR(Us({.cta_us = 5, .ctas = 100}) - kNothing, 5, 1e-9);
  EXPECT_NEAR(Us({.cta_us = 5, .ctas = 101}) - kNothing, 10, 1e-9);
  // Two beside each other share their multiprocessor.
  EXPECT_NEAR(Us({.cta_us = 5, .ctas = 200, .ctas_per_sm = 2}) - kNothing, 10, 1e-9);
}

TEST(LaunchCost, ABoardWithoutKnownRatesGivesNoNonsense) {
  DeviceSpec unknown;
  unknown.kind = DeviceKind::kCuda;
  unknown.read_gb_s = 0;
  const double us = PredictUs({.memory_bytes = 1e6, .cta_us = SmUs(1e9, 0, unknown)}, unknown);
  EXPECT_GT(us, 0);
  EXPECT_LT(us, 1e12);
}

}  // namespace
}  // namespace tilewright
