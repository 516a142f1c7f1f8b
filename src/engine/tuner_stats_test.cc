#include "engine/tuner_stats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"

namespace tilewright {
namespace {

TEST(TunerStats, MedianIntervalAndTrimmedMean) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Median({}), 0);
  std::vector<double> many;
  for (int i = 1; i <= 100; ++i) many.push_back(i);
  const MedianInterval interval = IntervalOf(many);
  EXPECT_EQ(interval.median, 50.5);
  EXPECT_NEAR(interval.low, 41, 1);
  EXPECT_NEAR(interval.high, 61, 1);
  const PairedDifference spiked = TrimmedMean({0.01, 0.011, 0.009, 0.01, 0.012, 0.008, 0.01, 5.0});
  EXPECT_NEAR(spiked.mean, 0.0105, 0.002);
  EXPECT_LT(spiked.error, 0.01);
  EXPECT_TRUE(std::isinf(TrimmedMean({1.0}).error));
}

TEST(TunerStats, TheIntervalCoversTheMedianAboutAsOftenAsItSays) {
  Random random(4);
  int covered = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<double> values;
    for (int i = 0; i < 20; ++i) values.push_back(random.Normal());
    const MedianInterval interval = IntervalOf(values);
    covered += interval.low <= 0 && interval.high >= 0 ? 1 : 0;
  }
  EXPECT_GT(covered, 1860);
  EXPECT_LT(covered, 1999);
}

}  // namespace
}  // namespace tilewright
