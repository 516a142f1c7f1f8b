#include "engine/machine_mode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace tilewright {
namespace {

TEST(MachineMode, FullSpeedIsWhatTheFastestTenthReaches) {
  EXPECT_EQ(FullSpeedUs({}, 0), 0);
  EXPECT_EQ(FullSpeedUs(std::vector<double>{21}, 0), 21);
  std::vector<double> times;
  for (int i = 0; i < 100; ++i) times.push_back(20 + i % 10);
  times[3] = 1;  // one lucky reading of the clock is no speed
  EXPECT_EQ(FullSpeedUs(times, 0), 20);
  EXPECT_EQ(FullSpeedUs(times, 18), 18);
  EXPECT_EQ(FullSpeedUs(times, 25), 20);
  std::reverse(times.begin(), times.end());
  EXPECT_EQ(FullSpeedUs(times, 0), 20) << "whatever their order";
}

TEST(MachineMode, WhatIsNoTimeSaysNothing) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(FullSpeedUs(std::vector<double>{0, -3, nan, infinity, 30}, nan), 30);
  const std::vector<BlockReference> blocks{{1, 100}, {2, 0}};
  EXPECT_TRUE(SlowBlocks(blocks, 0).empty());
  EXPECT_TRUE(SlowBlocks(blocks, nan).empty());
  EXPECT_EQ(SlowSpell({}, 20), std::nullopt);
}

TEST(MachineMode, BlocksBeyondTheLimitAreSlowAndTheReasonSaysByHowMuch) {
  const std::vector<BlockReference> blocks{{4, 20}, {5, 50}, {6, 25.9}, {7, 26.1}};
  EXPECT_EQ(SlowBlocks(blocks, 20), (std::vector<int>{5, 7}));
  const auto spell = SlowSpell(blocks, 20);
  ASSERT_TRUE(spell);
  EXPECT_EQ(
      *spell,
      "the machine was in a slow spell: a reference loop took up to 2.5 times what it does at "
      "full speed, in 2 of 4 blocks of samples");
  EXPECT_EQ(SlowSpell(std::vector<BlockReference>{{1, 20}, {2, 22}}, 20), std::nullopt);
}

TEST(MachineMode, ABimodalMachineIsToldFromANoisyOne) {
  std::mt19937 random(7);
  std::normal_distribution<double> jitter(0, 0.04);
  for (const bool bimodal : {true, false}) {
    std::vector<double> times;
    std::vector<BlockReference> blocks;
    for (int block = 0; block < 200; ++block) {
      const bool slow = bimodal && block / 50 % 2 == 1;  // spells of fifty blocks, at 40 %
      const double us = 20 * (slow ? 2.5 : 1) * std::exp(jitter(random));
      times.push_back(us);
      blocks.push_back({block, us});
    }
    const std::vector<int> slow = SlowBlocks(blocks, FullSpeedUs(times, 0));
    EXPECT_EQ(slow.size(), bimodal ? 100u : 0u);
    for (const int block : slow) EXPECT_EQ(block / 50 % 2, 1);
  }
}

}  // namespace
}  // namespace tilewright
