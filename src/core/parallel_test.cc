#include "core/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "core/test_executor.h"

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

TEST(PartsOfEachTest, FewPiecesAreCutForAllWorkersAndManyAreNot) {
  EXPECT_EQ(PartsOfEach(1, 16, 100), 64);
  EXPECT_EQ(PartsOfEach(1, 16, 7), 7);
  EXPECT_EQ(PartsOfEach(43, 16, 100), 2);
  EXPECT_EQ(PartsOfEach(64, 16, 100), 1);
  EXPECT_EQ(PartsOfEach(1000, 16, 100), 1);
  EXPECT_EQ(PartsOfEach(1, 1, 100), 1);
}

TEST(PartsOfEachTest, EveryUnitOfEveryPieceIsInOnePart) {
  const auto pool = MakeThreadPool(3);
  for (const int units : {1, 7, 100}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(5 * units));
    RunPartsInLanes(*pool, 5, units, [&](int piece, int begin, int end) {
      for (int i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(piece * units + i)];
    });
    for (const auto& times : seen) EXPECT_EQ(times, 1);
  }
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

TEST(RunInLanesTest, AWorkerBeginsWithItsOwnTasksAndHelpsTheNextOne) {
  test::CallersThread executor(3, 1);
  std::vector<int> order;
  RunInLanes(executor, 10, [&](int task, int worker) {
    EXPECT_EQ(worker, 1);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector{3, 4, 5, 6, 7, 8, 9, 0, 1, 2}));
}

TEST(RunInLanesTest, WorkersAtTheSameTimeAreInLanesOfTheirOwn) {
  const auto pool = MakeThreadPool(2);
  std::atomic<int> begun{0};
  std::array<int, 2> first = {-1, -1};
  RunInLanes(*pool, 100, [&](int task, int worker) {
    int& own = first[static_cast<std::size_t>(worker)];
    if (own >= 0) return;
    own = task;
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  EXPECT_EQ(first, (std::array{0, 50}));
}

TEST(RunInLanesTest, FewTasksAreTheExecutorsOwn) {
  test::CallersThread executor(4);
  std::vector<int> workers;
  RunInLanes(executor, 7, [&](int, int worker) { workers.push_back(worker); });
  EXPECT_EQ(workers, (std::vector{0, 1, 2, 3, 0, 1, 2}));
  EXPECT_FALSE(KeepsLanes(4, 7));
  EXPECT_TRUE(KeepsLanes(4, 8));
  EXPECT_TRUE(KeepsLanes(100, 2 * kMostLanes));
}

TEST(RunInLanesTest, EveryTaskRunsOnce) {
  for (const int workers : {1, 2, 7, 64, 65, 100}) {
    test::ForeignExecutor foreign(workers);
    LimitedExecutor limited(foreign, std::max(1, workers / 2));
    for (Executor* executor :
         {static_cast<Executor*>(&foreign), static_cast<Executor*>(&limited)}) {
      for (const int count : {0, 1, 2, 13, 128, 1000}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        RunInLanes(*executor, count, [&](int task, int worker) {
          EXPECT_LT(worker, executor->workers());
          ++seen[static_cast<std::size_t>(task)];
        });
        for (const auto& times : seen) EXPECT_EQ(times, 1);
      }
    }
  }
}

TEST(RunBlocksInLanesTest, EachWorkerHasAsManyBlocksAsTheOthers) {
  EXPECT_TRUE(KeepsBlocks(4, 8));
  EXPECT_FALSE(KeepsBlocks(4, 6));
  EXPECT_TRUE(KeepsBlocks(100, 2 * kMostLanes));
  EXPECT_FALSE(KeepsBlocks(1, kMostBlocks + 1));
}

TEST(RunBlocksInLanesTest, AWorkerBeginsWithItsOwnBlocks) {
  test::CallersThread executor(3, 1);
  std::vector<int> order;
  RunBlocksInLanes(
      executor, 3, 2, [&](int block) { order.push_back(100 * block); },
      [&](int block, int piece, int worker) {
        EXPECT_EQ(worker, 1);
        order.push_back(100 * block + 10 + piece);
      });
  EXPECT_EQ(order, (std::vector{100, 110, 111, 200, 210, 211, 0, 10, 11}));
  EXPECT_EQ(executor.calls(), 1);
}

TEST(RunBlocksInLanesTest, EveryBlockIsPreparedOnceBeforeItsPieces) {
  for (const int workers : {1, 2, 7, 64, 65}) {
    const auto pool = MakeThreadPool(workers);
    test::ForeignExecutor foreign(workers);
    test::CallersThread callers(workers, workers / 2);
    for (Executor* executor :
         {pool.get(), static_cast<Executor*>(&foreign), static_cast<Executor*>(&callers)}) {
      for (const int each : {1, 3}) {
        const int blocks = each * std::min(workers, kMostLanes);
        for (const int pieces : {1, 2, 5}) {
          std::vector<std::atomic<int>> prepared(static_cast<std::size_t>(blocks));
          std::vector<std::atomic<int>> seen(static_cast<std::size_t>(blocks * pieces));
          RunBlocksInLanes(
              *executor, blocks, pieces,
              [&](int block) {
                std::this_thread::yield();  // others come meanwhile
                ++prepared[static_cast<std::size_t>(block)];
              },
              [&](int block, int piece, int worker) {
                EXPECT_LT(worker, workers);
                EXPECT_EQ(prepared[static_cast<std::size_t>(block)], 1);
                ++seen[static_cast<std::size_t>(block * pieces + piece)];
              });
          for (const auto& times : prepared) EXPECT_EQ(times, 1);
          for (const auto& times : seen) EXPECT_EQ(times, 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tilewright
