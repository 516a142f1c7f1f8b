#include "core/shrinking_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tilewright {
namespace {

using Range = ShrinkingTasks::Range;

TEST(ShrinkingTasksTest, LongPiecesOfAllLanesComeFirst) {
  const ShrinkingTasks tasks(16, 2, 1);
  std::vector<Range> ranges;
  for (int i = 0; i < tasks.count(); ++i) ranges.push_back(tasks[i]);
  EXPECT_EQ(ranges, (std::vector<Range>{
                        {0, 4}, {8, 12}, {4, 6}, {12, 14}, {6, 7}, {14, 15}, {7, 8}, {15, 16}}));
}

TEST(ShrinkingTasksTest, PiecesAreWithinTheirBounds) {
  EXPECT_EQ(ShrinkingTasks(64, 1, 64).count(), 1);
  const ShrinkingTasks even(10, 1, 4, 4);
  ASSERT_EQ(even.count(), 3);
  EXPECT_EQ(even[0], (Range{0, 4}));
  EXPECT_EQ(even[2], (Range{8, 10}));
  const ShrinkingTasks capped(64, 1, 2, 8);
  EXPECT_EQ(capped[0], (Range{0, 8}));
  EXPECT_EQ(capped[6], (Range{48, 56}));
  EXPECT_EQ(capped[7], (Range{56, 60}));
  EXPECT_EQ(capped[8], (Range{60, 62}));
  EXPECT_EQ(capped[9], (Range{62, 64}));
  EXPECT_EQ(capped.count(), 10);
}

TEST(ShrinkingTasksTest, PiecesOfAStreamAreLongEnoughToBeTaken) {
  EXPECT_EQ(ShrinkingTasks::OfStream(36, 2, 8, 5760), ShrinkingTasks(36, 2, 6));
  EXPECT_EQ(ShrinkingTasks::OfStream(36, 16, 8, 5760), ShrinkingTasks::InPieces(36, 16, 1));
  EXPECT_EQ(ShrinkingTasks::OfStream(1024, 2, 8, 64 << 10), ShrinkingTasks::InPieces(1024, 2, 8));
}

/// Whatever the numbers; a launch reserves memory for the longest task.
TEST(ShrinkingTasksTest, EveryUnitIsInOneTaskAndTheFirstOfTheLastLaneIsTheLongest) {
  for (int units = 1; units <= 130; ++units) {
    for (const int lanes : {1, 2, 3, 7, 16, 40}) {
      for (const int least : {1, 2, 3, 5, 16, 200}) {
        for (const int most : {least, least + 1, 2 * least + 1, 1000}) {
          const ShrinkingTasks tasks(units, lanes, least, most);
          std::vector<int> times(static_cast<std::size_t>(units));
          const auto [first, end] = tasks[tasks.lanes() - 1];
          ASSERT_LE(end - first, most);
          int longest = 0;
          for (int i = 0; i < tasks.count(); ++i) {
            const Range range = tasks[i];
            longest = std::max(longest, range.end - range.first);
            for (int unit = range.first; unit < range.end; ++unit)
              ++times[static_cast<std::size_t>(unit)];
          }
          ASSERT_EQ(longest, end - first) << units << " " << lanes << " " << least << " " << most;
          ASSERT_EQ(std::count(times.begin(), times.end(), 1), units)
              << units << " " << lanes << " " << least << " " << most;
        }
      }
    }
  }
}

TEST(ShrinkingTasksTest, ALaneHasAsManyPiecesAsAskedFor) {
  for (int pieces = 1; pieces <= 6; ++pieces) {
    const int least = ShrinkingTasks::LeastOf(1024, 16, pieces);
    EXPECT_EQ(ShrinkingTasks(1024, 16, least).pieces(), pieces);
  }
  EXPECT_EQ(ShrinkingTasks::LeastOf(5, 16, 1), 1);
  EXPECT_EQ(ShrinkingTasks::LeastOf(1024, 1, 64), 1);
}

}  // namespace
}  // namespace tilewright
