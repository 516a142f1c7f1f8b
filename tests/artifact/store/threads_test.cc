// The facade under several threads: one compilation a kernel, whatever happens to who does it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "artifact/store/fake_compiler.h"
#include "tilewright/artifact_store.h"

namespace tilewright::test {
namespace {

using ::testing::HasSubstr;

void OnThreads(int count, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
}

/// A door that a compilation waits at.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void AwaitSomebody() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

class StoreThreads : public ::testing::Test {
 protected:
  const TemporaryFolder folder;
  const std::string root = folder / "root";
};

TEST_F(StoreThreads, AStormOverTheSameKernelsCompilesEachOnce) {
  const auto compiler = MakeFakeCompiler({.takes = std::chrono::milliseconds(1)});
  const auto store = OpenFake(FakeOptions(root, compiler));
  const std::vector<KernelSpec> specs = GemmSpecs(50);
  std::vector<std::vector<KernelHandle>> handles(8);
  OnThreads(8, [&](int thread) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const std::size_t at = (i + static_cast<std::size_t>(thread) * 7) % specs.size();
      const auto handle = store->Compile(specs[at]);
      ASSERT_TRUE(handle) << handle.error().message;
      ASSERT_EQ((*handle)->spec, specs[at]);
      ASSERT_EQ(store->Find(specs[at]), *handle);
    }
    for (const KernelSpec& spec : specs) {
      handles[static_cast<std::size_t>(thread)].push_back(store->Find(spec));
    }
  });
  EXPECT_EQ(compiler->compiles(), 50);
  for (const auto& other : handles) EXPECT_EQ(other, handles[0]);
  const ArtifactCounters counters = store->process_counters();
  EXPECT_EQ(counters.compiles, 50u);
  EXPECT_EQ(counters.publishes, 50u);
  EXPECT_EQ(counters.publishes_lost, 0u);
  EXPECT_EQ(counters.hits[0] + counters.requests_missed, 400u);
}

TEST_F(StoreThreads, ListsThatCrossDoNotWaitForEachOther) {
  const auto compiler = MakeFakeCompiler({.takes = std::chrono::milliseconds(1)});
  auto options = FakeOptions(root, compiler);
  options.compile_threads = 1;
  const auto store = OpenFake(options);
  OnThreads(6, [&](int thread) {
    std::vector<KernelSpec> specs = GemmSpecs(30);
    if (thread % 2 == 1) std::reverse(specs.begin(), specs.end());
    if (thread % 3 == 2) {
      for (const KernelSpec& spec : specs) ASSERT_TRUE(store->Compile(spec));
      return;
    }
    for (const auto& handle : store->CompileAll(specs)) ASSERT_TRUE(handle);
  });
  EXPECT_EQ(compiler->compiles(), 30);
}

TEST_F(StoreThreads, TwoStoresOfOneProcessOnOneRootCompileEachOnce) {
  const auto compiler = MakeFakeCompiler({.takes = std::chrono::milliseconds(2)});
  const auto one = OpenFake(FakeOptions(root, compiler));
  const auto two = OpenFake(FakeOptions(root, compiler));
  OnThreads(4, [&](int thread) {
    for (const auto& handle : (thread % 2 == 0 ? one : two)->CompileAll(GemmSpecs(20))) {
      ASSERT_TRUE(handle);
    }
  });
  EXPECT_EQ(compiler->compiles(), 20);
}

TEST_F(StoreThreads, AFailureGoesToAllWhoWaitAndThenIsTriedAgain) {
  Gate gate;
  std::atomic<bool> fails{true};
  const auto compiler =
      MakeFakeCompiler({.fails = [&](const CompileJob&) -> std::optional<CompileFailure> {
        if (!fails) return std::nullopt;
        gate.Pass();
        throw std::runtime_error("thrown on purpose");
      }});
  const auto store = OpenFake(FakeOptions(root, compiler));
  std::atomic<int> failed{0};
  std::thread leader([&] { failed += !store->Compile(GemmSpec()); });
  gate.AwaitSomebody();
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      const auto handle = store->Compile(GemmSpec());
      failed += !handle;
      if (!handle) {
        EXPECT_THAT(handle.error().message, HasSubstr("thrown on purpose"));
      }
    });
  }
  gate.Open();
  leader.join();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(failed, 5);
  fails = false;
  EXPECT_TRUE(store->Compile(GemmSpec()));
}

TEST_F(StoreThreads, AWaiterCanLeaveAndALeaderCanBeReplaced) {
  std::atomic<bool> hangs{true};
  Gate gate;
  const auto compiler = MakeFakeCompiler({.begins = [&](const CompileJob&) {
    if (hangs) gate.Pass();
  }});
  const auto store = OpenFake(FakeOptions(root, compiler));
  std::thread leader([&] { EXPECT_TRUE(store->Compile(GemmSpec())); });
  gate.AwaitSomebody();
  CompileControl impatient;
  impatient.cancelled = [] { return true; };
  const auto left = store->Compile(GemmSpec(), impatient);
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().code, ErrorCode::kCancelled);
  std::atomic<int> asked{0};
  CompileControl soon;
  soon.cancelled = [&] { return ++asked > 2; };
  EXPECT_EQ(store->Compile(GemmSpec(), soon).error().code, ErrorCode::kCancelled);
  hangs = false;
  gate.Open();
  leader.join();
  EXPECT_EQ(compiler->compiles(), 1);
}

TEST_F(StoreThreads, WhenTheLeaderIsCancelledAWaiterTakesOver) {
  std::atomic<bool> hang{true}, cancel{false}, begun{false};
  // Hangs until its caller cancels, the first time only.
  class Hanging : public KernelCompiler {
   public:
    Hanging(std::atomic<bool>& hang, std::atomic<bool>& begun) : hang_(hang), begun_(begun) {}
    const CompilerIdentity& identity() const override { return inner_.identity(); }
    tl::expected<CompileOutput, CompileFailure> Compile(const CompileJob& job,
                                                        const CancelFn& cancelled) const override {
      if (hang_.exchange(false)) {
        begun_ = true;
        while (!cancelled()) std::this_thread::yield();
        return tl::unexpected<CompileFailure>(
            CompileFailure{false, {ErrorCode::kCancelled, "cancelled"}, ""});
      }
      return inner_.Compile(job, cancelled);
    }

   private:
    FakeCompiler inner_;
    std::atomic<bool>& hang_;
    std::atomic<bool>& begun_;
  };
  const auto store = OpenFake(FakeOptions(root, std::make_shared<Hanging>(hang, begun)));
  std::thread leader([&] {
    CompileControl control;
    control.cancelled = [&] { return cancel.load(); };
    EXPECT_EQ(store->Compile(GemmSpec(), control).error().code, ErrorCode::kCancelled);
  });
  while (!begun) std::this_thread::yield();
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    CompileControl control;
    control.cancelled = [&] {
      waiting = true;  // asked while it waits
      return false;
    };
    EXPECT_TRUE(store->Compile(GemmSpec(), control));
  });
  while (!waiting) std::this_thread::yield();
  cancel = true;
  leader.join();
  waiter.join();
  EXPECT_TRUE(store->Find(GemmSpec()));
}

TEST_F(StoreThreads, ReportsRunBesideWork) {
  const auto compiler = MakeFakeCompiler({.takes = std::chrono::milliseconds(1)});
  const auto store = OpenFake(FakeOptions(root, compiler));
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      store->List();
      store->GetTotals();
      store->counters();
      store->warnings();
      EXPECT_TRUE(store->Explain(GemmSpec(3)));
      store->Gc(true, true);
    }
  });
  for (const auto& handle : store->CompileAll(GemmSpecs(40))) ASSERT_TRUE(handle);
  stop = true;
  reader.join();
  EXPECT_EQ(compiler->compiles(), 40);
}

TEST_F(StoreThreads, VerificationsRunBesideEachOtherAndBesideWork) {
  const auto compiler = MakeFakeCompiler({.takes = std::chrono::milliseconds(1)});
  const auto store = OpenFake(FakeOptions(root, compiler));
  for (const auto& handle : store->CompileAll(GemmSpecs(10))) ASSERT_TRUE(handle);
  OnThreads(3, [&](int i) {
    if (i == 0) {
      for (const auto& handle : store->CompileAll(GemmSpecs(30))) ASSERT_TRUE(handle);
      return;
    }
    std::size_t told = 0;
    const auto report = store->Verify(
        true, {.cancelled = {}, .progress = [&](const CompileProgress& at) { told = at.done; }});
    EXPECT_GE(report.good, 10u);
    EXPECT_EQ(report.recompiled, report.good);
    EXPECT_GE(told, report.good);
    EXPECT_EQ(report.differ, 0u);
    EXPECT_TRUE(report.troubles.empty());
  });
  EXPECT_LE(compiler->most_at_once(), 2) << "one service for all";
}

TEST_F(StoreThreads, ReadonlyAndRefreshCompileOnceAProcessToo) {
  for (const CacheMode mode : {CacheMode::kReadonly, CacheMode::kRefresh}) {
    const auto compiler = MakeFakeCompiler({.takes = std::chrono::milliseconds(1)});
    auto options = FakeOptions(root, compiler);
    options.mode = mode;
    const auto store = OpenFake(options);
    OnThreads(4, [&](int) {
      for (const auto& handle : store->CompileAll(GemmSpecs(10))) ASSERT_TRUE(handle);
    });
    EXPECT_EQ(compiler->compiles(), 10);
  }
}

}  // namespace
}  // namespace tilewright::test
