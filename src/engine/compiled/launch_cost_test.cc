#include "engine/compiled/launch_cost.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

/// 4 GB/ms of its memory's 5 are reached: 4 MB take a microsecond.
DeviceSpec Board() {
  DeviceSpec board;
  board.kind = DeviceKind::kCuda;
  board.sm_count = 100;
  board.read_gb_s = 5000;
  return board;
}

constexpr double kLaunch = 2.5, kRound = 1.5;
double Us(const LaunchCost& cost) { return PredictUs(cost, Board()) - kLaunch; }

TEST(LaunchCost, NothingStillTakesALaunchAndARound) { EXPECT_NEAR(Us({}), kRound, 1e-9); }

TEST(LaunchCost, BytesTakeTheirTimeOnTheBus) {
  EXPECT_NEAR(Us({.memory_bytes = 4e7, .ctas = 100}), 10, 1e-9);
  EXPECT_NEAR(Us({.memory_bytes = 4e8, .ctas = 100}), 100, 1e-9);
  // From the L2 at 1.8 times the peak: 9 MB in a microsecond.
  EXPECT_NEAR(Us({.memory_bytes = 4e7, .cache_bytes = 14e7, .ctas = 100}), 20, 1e-9);
}

TEST(LaunchCost, FewBytesOnTheirWayDoNotFillTheBus) {
  // 1 us of the bus is 4 MB: 40 KB on each of 100 multiprocessors.
  const LaunchCost full{.memory_bytes = 4e7, .in_flight_bytes = 40e3, .ctas = 100};
  EXPECT_NEAR(Us(full), 10, 1e-9);
  LaunchCost half = full;
  half.in_flight_bytes = 20e3;
  EXPECT_NEAR(Us(half), 20, 1e-9);
  half.ctas = 200, half.ctas_per_sm = 2;
  EXPECT_NEAR(Us(half), 10, 1e-9);
  LaunchCost few = full;
  few.ctas = 10;
  EXPECT_NEAR(Us(few), 100, 1e-9);
}

TEST(LaunchCost, FewWarpsLeaveUnitsIdle) {
  const LaunchCost eight{.memory_bytes = 4e7, .cta_us = 1, .ctas = 100, .warps = 8};
  EXPECT_NEAR(Us(eight), 10, 1e-9);
  LaunchCost four = eight;
  four.warps = 4;
  EXPECT_NEAR(Us(four), 20, 1e-9);
  four.ctas = 200, four.ctas_per_sm = 2;
  EXPECT_NEAR(Us(four), 10, 1e-9);
}

TEST(LaunchCost, AnIncompleteRoundTakesAWholeOne) {
  EXPECT_NEAR(Us({.cta_us = 5, .ctas = 1}), kRound + 5, 1e-9);
  EXPECT_NEAR(Us({.cta_us = 5, .ctas = 100}), kRound + 5, 1e-9);
  EXPECT_NEAR(Us({.cta_us = 5, .ctas = 101}), 2 * (kRound + 5), 1e-9);
  // Two beside each other share their multiprocessor.
  EXPECT_NEAR(Us({.cta_us = 5, .ctas = 200, .ctas_per_sm = 2}), kRound + 10, 1e-9);
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
