#pragma once

#include <algorithm>
#include <thread>
#include <vector>

#include "tilewright/executor.h"

/// Helpers for tests only; no library file includes this header.

namespace tilewright::test {

/// Says that it has workers, and runs the tasks of a call one after the other on the calling thread: task i as worker
/// `first` + i, modulo their number. Counts what it was asked for.
class CallersThread final : public Executor {
 public:
  explicit CallersThread(int workers, int first = 0) : workers_(workers), first_(first) {}
  int workers() const override { return workers_; }
  void ParallelFor(int count, Task task, void* context) override {
    ++calls_, tasks_ += count;
    for (int i = 0; i < count; ++i) task(context, i, (first_ + i) % workers_);
  }
  int calls() const { return calls_; }
  int tasks() const { return tasks_; }

 private:
  int workers_, first_;
  int calls_ = 0, tasks_ = 0;
};

/// An executor as a user may write one: a thread for each worker of each call, tasks dealt out in
/// turn, numbers of workers from the highest down. Counts what it was asked for.
class ForeignExecutor final : public Executor {
 public:
  explicit ForeignExecutor(int workers) : workers_(workers) {}
  int workers() const override { return workers_; }
  void ParallelFor(int count, Task task, void* context) override {
    most_tasks_ = std::max(most_tasks_, count);
    std::vector<std::thread> threads;
    for (int t = 0; t < std::min(workers_, count); ++t) {
      threads.emplace_back([=, this] {
        for (int i = t; i < count; i += workers_) task(context, i, workers_ - 1 - t);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// Of the largest call, so far: no more workers than this can have run at once. 0: never called.
  int most_tasks() const { return most_tasks_; }

 private:
  int workers_;
  int most_tasks_ = 0;
};

}  // namespace tilewright::test
