// The child of a fork uses the store it was copied with, whatever other threads were doing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "artifact/store/fake_compiler.h"

namespace tilewright::test {
namespace {

/// Runs `child` in a fork; its exit status, -signal where one ended it (a deadlock: SIGALRM).
int InChild(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(240);
    _exit(child());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class StoreFork : public ::testing::Test {
 protected:
  const TemporaryFolder folder;
  const std::string root = folder / "root";
};

TEST_F(StoreFork, TheChildFindsCompilesAndShares) {
  const auto compiler = MakeFakeCompiler();
  const auto store = OpenFake(FakeOptions(root, compiler));
  ASSERT_TRUE(store->Compile(GemmSpec(0)));
  EXPECT_EQ(InChild([&] {
              if (!store->Find(GemmSpec(0))) return 1;
              if (!store->Compile(GemmSpec(1))) return 2;
              for (const auto& handle : store->CompileAll(GemmSpecs(5))) {
                if (!handle) return 3;
              }
              return compiler->compiles() == 5 ? 0 : 4;
            }),
            0);
  for (const auto& handle : store->CompileAll(GemmSpecs(5))) ASSERT_TRUE(handle);
  EXPECT_EQ(compiler->compiles(), 1);
}

TEST_F(StoreFork, AForkAmidWorkOfOtherThreadsDoesNotHang) {
  const auto compiler = MakeFakeCompiler({.takes = std::chrono::milliseconds(1)});
  auto options = FakeOptions(root, compiler);
  options.lock_wait_ms = 2000;
  const auto store = OpenFake(options);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        if (t == 0) {
          store->CompileAll(GemmSpecs(i % 200));
        } else {
          EXPECT_TRUE(store->Compile(GemmSpec(1000 * t + i)));
        }
        store->warnings();
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(InChild([&] {
                if (!store->Compile(GemmSpec(100000 + i))) return 1;
                for (const auto& handle : store->CompileAll(GemmSpecs(10))) {
                  if (!handle) return 2;
                }
                return store->Find(GemmSpec(3)) ? 0 : 3;
              }),
              0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(StoreFork, TheChildIsNotBoundByWhatItsParentCompiles) {
  std::atomic<bool> release{false}, begun{false};
  const pid_t parent = getpid();
  const auto compiler = MakeFakeCompiler({.begins = [&](const CompileJob&) {
    if (getpid() != parent) return;
    begun = true;
    while (!release) std::this_thread::yield();
  }});
  auto options = FakeOptions(root, compiler);
  options.lock_wait_ms = 100;
  const auto store = OpenFake(options);
  std::thread thread([&] { EXPECT_TRUE(store->Compile(GemmSpec())); });
  while (!begun) std::this_thread::yield();
  EXPECT_EQ(InChild([&] {
              if (!store->Compile(GemmSpec())) return 1;
              // The parent's lock was respected until the time was over.
              return store->process_counters().lock_timeouts == 1 ? 0 : 2;
            }),
            0);
  release = true;
  thread.join();
}

}  // namespace
}  // namespace tilewright::test
