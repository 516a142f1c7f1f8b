#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/allocation_probe.h"
#include "core/test_executor.h"
#include "tilewright/executor.h"

// Counts what the process allocates, so that "allocates nothing" can be asserted.

namespace tilewright {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, EveryTaskRunsOnceAndIsVisibleToTheCaller) {
  const auto pool = MakeThreadPool(GetParam());
  EXPECT_EQ(pool->workers(), GetParam());
  std::vector<int> runs(1000);
  for (const int count : {0, 1, 2, 3, 7, 100, 1000}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      for (int& n : runs) n = 0;
      pool->Run(count, [&](int task, int) { ++runs[static_cast<std::size_t>(task)]; });
      for (int i = 0; i < 1000; ++i)
        ASSERT_EQ(runs[static_cast<std::size_t>(i)], i < count ? 1 : 0);
    }
  }
}

TEST_P(ThreadPoolTest, AWorkerNumberIsNeverUsedTwiceAtOnce) {
  const auto pool = MakeThreadPool(GetParam());
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(pool->workers()));
  std::atomic<int> clashes{0};
  for (int repeat = 0; repeat < 300; ++repeat) {
    pool->Run(16, [&](int, int worker) {
      ASSERT_TRUE(worker >= 0 && worker < pool->workers());
      if (inside[static_cast<std::size_t>(worker)].fetch_add(1) != 0) ++clashes;
      inside[static_cast<std::size_t>(worker)].fetch_sub(1);
    });
  }
  EXPECT_EQ(clashes, 0);
}

/// A task waits until all have begun, so that no worker is late.
TEST_P(ThreadPoolTest, TheFirstTasksAreDealtOutOneToEachWorker) {
  const auto pool = MakeThreadPool(GetParam());
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::atomic<int> begun{0}, strayed{0};
    pool->Run(pool->workers(), [&](int task, int worker) {
      if (task != worker) ++strayed;
      ++begun;
      while (begun < pool->workers()) std::this_thread::yield();
    });
    ASSERT_EQ(strayed, 0);
  }
}

TEST_P(ThreadPoolTest, JobsInQuickSuccessionDoNotMix) {
  const auto pool = MakeThreadPool(GetParam(), 5);
  // Each job writes its own number; a worker that is late by one job would write the wrong one or
  // beyond the count.
  int cells[8];
  for (int job = 0; job < 20000; ++job) {
    const int count = 2 + job % 7;
    pool->Run(count, [&, job](int task, int) { cells[task] = job; });
    for (int i = 0; i < count; ++i) ASSERT_EQ(cells[i], job);
  }
}

TEST_P(ThreadPoolTest, SleepingWorkersWakeAndIdlePoolsEnd) {
  const auto pool = MakeThreadPool(GetParam(), 0);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> sum{0};
    pool->Run(64, [&](int task, int) { sum += task; });
    ASSERT_EQ(sum, 64 * 63 / 2);
  }
}

TEST_P(ThreadPoolTest, ANestedCallRunsSeriallyAsTheSameWorker) {
  const auto pool = MakeThreadPool(GetParam());
  std::atomic<int> inner{0}, wrong{0};
  pool->Run(8, [&](int, int worker) {
    const std::thread::id thread = std::this_thread::get_id();
    pool->Run(5, [&](int, int inner_worker) {
      ++inner;
      if (inner_worker != worker || std::this_thread::get_id() != thread) ++wrong;
    });
  });
  EXPECT_EQ(inner, 40);
  EXPECT_EQ(wrong, 0);
}

TEST_P(ThreadPoolTest, TheCallerSleepsThroughLongTasksAndStillReturns) {
  const auto pool = MakeThreadPool(GetParam(), 0);
  std::atomic<int> done{0};
  pool->Run(4, [&](int, int) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    ++done;
  });
  EXPECT_EQ(done, 4);
}

TEST_P(ThreadPoolTest, AJobAllocatesNothing) {
  const auto pool = MakeThreadPool(GetParam());
  std::atomic<int> sum{0};
  pool->Run(8, [&](int, int) { ++sum; });
  const long before = AllocationProbe::Count();
  for (int i = 0; i < 100; ++i) pool->Run(8, [&](int, int) { ++sum; });
  EXPECT_EQ(AllocationProbe::Count(), before);
  EXPECT_EQ(sum, 808);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(ThreadPoolTest, WorkIsSharedAmongThreads) {
  const auto pool = MakeThreadPool(3);
  std::atomic<int> workers_seen{0};
  // Each task waits for the other two: they end only if three threads run at once.
  pool->Run(3, [&](int, int) {
    ++workers_seen;
    while (workers_seen < 3) std::this_thread::yield();
  });
  EXPECT_EQ(workers_seen, 3);
}

TEST(ThreadPoolTest, TwoPoolsMayNest) {
  const auto outer = MakeThreadPool(2);
  const auto inner = MakeThreadPool(2);
  std::atomic<int> sum{0};
  outer->Run(1, [&](int, int) {
    inner->Run(10, [&](int, int) { ++sum; });
    outer->Run(10, [&](int, int) { ++sum; });
  });
  outer->Run(10, [&](int, int) { ++sum; });
  EXPECT_EQ(sum, 30);
}

TEST(ThreadPoolTest, FewerThanOneThreadMeansOne) {
  EXPECT_EQ(MakeThreadPool(0)->workers(), 1);
  EXPECT_EQ(MakeThreadPool(-3)->workers(), 1);
}

/// Runs on `limit` workers of `executor`: every task once, and how many workers and threads took
/// any.
struct Taken {
  std::set<int> workers;
  std::set<std::thread::id> threads;
};
Taken RunLimited(Executor& executor, int limit, int count) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(std::max(limit, 1)));
  std::mutex mutex;
  Taken taken;
  executor.RunOn(limit, count, [&](int task, int worker) {
    ASSERT_TRUE(worker >= 0 && worker < std::max(limit, 1)) << worker;
    EXPECT_EQ(inside[static_cast<std::size_t>(worker)].fetch_add(1), 0) << "two tasks at once";
    ++runs[static_cast<std::size_t>(task)];
    {
      const std::lock_guard<std::mutex> lock(mutex);
      taken.workers.insert(worker);
      taken.threads.insert(std::this_thread::get_id());
    }
    inside[static_cast<std::size_t>(worker)].fetch_sub(1);
  });
  for (const auto& n : runs) EXPECT_EQ(n, 1);
  return taken;
}

TEST(LimitedExecutorTest, UsesNoMoreWorkersThanAskedForOnAnyExecutor) {
  const auto pool = MakeThreadPool(5);
  test::ForeignExecutor foreign(5);
  for (Executor* executor : {pool.get(), static_cast<Executor*>(&foreign), &SerialExecutor()}) {
    for (const int limit : {-1, 0, 1, 2, 3, 5, 9}) {
      for (const int count : {0, 1, 2, 3, 64}) {
        SCOPED_TRACE(std::to_string(limit) + " workers, " + std::to_string(count) + " tasks");
        const auto most = static_cast<std::size_t>(std::min({std::max(limit, 1), count, 5}));
        const Taken taken = RunLimited(*executor, limit, count);
        EXPECT_LE(taken.workers.size(), most);
        EXPECT_LE(taken.threads.size(), most);
      }
    }
    EXPECT_EQ(RunLimited(*executor, 1, 8).threads, std::set{std::this_thread::get_id()});
  }
  foreign.RunOn(3, 64, [](int, int) {});
  EXPECT_EQ(LimitedExecutor(foreign, 3).workers(), 3);
  EXPECT_EQ(LimitedExecutor(foreign, 9).workers(), 5);
  EXPECT_EQ(LimitedExecutor(foreign, 0).workers(), 1);
}

TEST(LimitedExecutorTest, HasAsManyAtWorkAsItMay) {
  const auto pool = MakeThreadPool(5);
  test::ForeignExecutor foreign(5);
  for (Executor* executor : {pool.get(), static_cast<Executor*>(&foreign)}) {
    std::atomic<int> met{0}, workers{0};
    // Each task waits for the other two: they end only if three workers run at once.
    executor->RunOn(3, 3, [&](int, int worker) {
      workers |= 1 << worker;
      ++met;
      while (met < 3) std::this_thread::yield();
    });
    EXPECT_EQ(met, 3);
    EXPECT_EQ(workers, 0b111) << "each has a number of its own";
  }
}

TEST(LimitedExecutorTest, AllocatesNothing) {
  const auto pool = MakeThreadPool(3);
  std::atomic<int> sum{0};
  const long before = AllocationProbe::Count();
  for (int i = 0; i < 100; ++i) pool->RunOn(2, 8, [&](int, int) { ++sum; });
  EXPECT_EQ(AllocationProbe::Count(), before);
  EXPECT_EQ(sum, 800);
}

TEST(SerialExecutorTest, RunsInOrderOnTheCaller) {
  std::vector<int> order;
  SerialExecutor().Run(4, [&](int task, int worker) {
    EXPECT_EQ(worker, 0);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(SerialExecutor().workers(), 1);
}

}  // namespace
}  // namespace tilewright
