#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace tilewright {
namespace {

TEST(ParallelRangesTest, LittleWorkWakesAsFewWorkersAsItNeeds) {
  EXPECT_EQ(RangeCount(0, 10, 4), 0);
  EXPECT_EQ(RangeCount(19, 10, 4), 1);
  EXPECT_EQ(RangeCount(39, 10, 4), 3);
  EXPECT_EQ(RangeCount(1000, 10, 1), 1);
  EXPECT_EQ(RangeCount(3, 0, 4), 3);
}

// 512 rows of which 28 make a range: 18 ranges keep 16 workers for as long as 32 do.
TEST(ParallelRangesTest, WithARangeForEachWorkerTheyAreAMultipleOfTheWorkers) {
  EXPECT_EQ(RangeCount(512, 28, 16), 64);
  EXPECT_EQ(RangeCount(160, 10, 16), 64);
  EXPECT_EQ(RangeCount(20, 1, 16), 20);
}

TEST(ParallelRangesTest, EveryElementIsInOneRange) {
  const auto pool = MakeThreadPool(3);
  for (const std::int64_t total : {0, 1, 7, 12, 100}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(total));
    ParallelRanges(*pool, total, 2, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    for (const auto& times : seen) EXPECT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace tilewright
