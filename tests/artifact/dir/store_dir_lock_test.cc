#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "dir_fixture.h"

namespace tilewright::test {
namespace {

using LockResult = StoreDir::LockResult;

class StoreDirLock : public StoreDirTest {
 protected:
  LockResult Try(StoreDir& dir, int number = 1) {
    StoreDir::KeyLock lock;
    return dir.TryLock(MakeTestEntry(number).action, lock);
  }
  /// What another process is told.
  LockResult TryElsewhere(int number = 1) {
    const int status = InChild([&] {
      const auto dir = Open();
      _exit(10 + static_cast<int>(Try(*dir, number)));
    });
    return static_cast<LockResult>(WEXITSTATUS(status) - 10);
  }
  /// A child that takes the lock, says so through a pipe, and stays.
  pid_t Holder() {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = StartChild([&] {
      const auto dir = Open();
      StoreDir::KeyLock lock;
      const char word =
          dir->TryLock(MakeTestEntry(1).action, lock) == LockResult::kHeld ? 'y' : 'n';
      (void)!write(ready[1], &word, 1);
      for (;;) pause();
    });
    char word = 0;
    EXPECT_EQ(read(ready[0], &word, 1), 1);
    EXPECT_EQ(word, 'y');
    close(ready[0]);
    close(ready[1]);
    return child;
  }
};

TEST_F(StoreDirLock, KeepsOutThreadsStoresAndProcessesUntilItIsReleased) {
  const auto one = Open(), two = Open();
  {
    StoreDir::KeyLock lock;
    ASSERT_EQ(one->TryLock(MakeTestEntry(1).action, lock), LockResult::kHeld);
    EXPECT_TRUE(lock.held());
    EXPECT_EQ(Try(*one), LockResult::kBusy) << "the same store, as another thread would ask";
    EXPECT_EQ(Try(*two), LockResult::kBusy);
    EXPECT_EQ(TryElsewhere(), LockResult::kBusy);
    EXPECT_EQ(TryElsewhere(2), LockResult::kHeld) << "another key";
    StoreDir::KeyLock moved = std::move(lock);
    EXPECT_TRUE(moved.held());
    EXPECT_FALSE(lock.held());  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_EQ(TryElsewhere(), LockResult::kBusy);
  }
  EXPECT_EQ(TryElsewhere(), LockResult::kHeld);
  EXPECT_EQ(Try(*one), LockResult::kHeld);
}

TEST_F(StoreDirLock, AllKeysTogetherTakeSixteenFiles) {
  const auto dir = Open();
  std::vector<StoreDir::KeyLock> locks(200);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(dir->TryLock(MakeTestEntry(i).action, locks[static_cast<std::size_t>(i)]),
              LockResult::kHeld);
  }
  EXPECT_EQ(NamesIn(root_ + "/v1/lock").size(), 16u);
  locks.clear();
  EXPECT_EQ(NamesIn(root_ + "/v1/lock").size(), 16u) << "they are never removed";
}

TEST_F(StoreDirLock, TheNextTakesOverWhenTheHolderIsKilled) {
  const auto dir = Open();
  const pid_t holder = Holder();
  EXPECT_EQ(Try(*dir), LockResult::kBusy);
  kill(holder, SIGKILL);
  (void)WaitFor(holder);
  EXPECT_EQ(Try(*dir), LockResult::kHeld);
}

TEST_F(StoreDirLock, AHolderThatHangsIsToldAtOnceNotWaitedFor) {
  const auto dir = Open();
  const pid_t holder = Holder();
  kill(holder, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(holder, &status, WUNTRACED), holder);
  EXPECT_EQ(Try(*dir), LockResult::kBusy);
  EXPECT_EQ(Try(*dir, 2), LockResult::kHeld);
  const Entry entry = MakeTestEntry(1);
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew)
      << "a lock saves work; it guards nothing";
  kill(holder, SIGKILL);
  (void)WaitFor(holder);
}

TEST_F(StoreDirLock, AChildOfAForkDoesNotKeepTheLockOfItsParentAlive) {
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  // A process that takes the lock, forks a child that lives on, and is killed.
  int grandchild_pid[2];
  ASSERT_EQ(pipe(grandchild_pid), 0);
  const pid_t parent = StartChild([&] {
    const auto dir = Open();
    StoreDir::KeyLock lock;
    if (dir->TryLock(MakeTestEntry(1).action, lock) != LockResult::kHeld) _exit(1);
    if (fork() == 0) {
      // From here, not from the parent: only now has it closed what it inherited.
      const pid_t self = getpid();
      (void)!write(grandchild_pid[1], &self, sizeof self);
      close(go[1]);
      char word;
      (void)!read(go[0], &word, 1);  // until the test ends
      _exit(0);
    }
    for (;;) pause();
  });
  pid_t grandchild = 0;
  ASSERT_EQ(read(grandchild_pid[0], &grandchild, sizeof grandchild),
            static_cast<ssize_t>(sizeof grandchild));
  EXPECT_EQ(TryElsewhere(), LockResult::kBusy);
  kill(parent, SIGKILL);
  (void)WaitFor(parent);
  EXPECT_EQ(kill(grandchild, 0), 0) << "it lives";
  EXPECT_EQ(TryElsewhere(), LockResult::kHeld);
  for (const int fd : {go[0], go[1], grandchild_pid[0], grandchild_pid[1]}) close(fd);
}

TEST_F(StoreDirLock, AChildOfAForkHasNoLockAndReleasesNoneButCanTakeItsOwn) {
  const auto dir = Open();
  const int descriptors = OpenDescriptors();
  StoreDir::KeyLock lock;
  ASSERT_EQ(dir->TryLock(MakeTestEntry(1).action, lock), LockResult::kHeld);
  const int status = InChild([&] {
    EXPECT_EQ(OpenDescriptors(), descriptors) << "the descriptor of the lock is closed";
    EXPECT_EQ(Try(*dir), LockResult::kBusy) << "the parent's";
    StoreDir::KeyLock mine;
    EXPECT_EQ(dir->TryLock(MakeTestEntry(2).action, mine), LockResult::kHeld);
    lock = StoreDir::KeyLock();  // what was the parent's
    EXPECT_EQ(Try(*dir), LockResult::kBusy);
    const Entry entry = MakeTestEntry(3);
    EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
    dir->Count(0, 1);
  });
  EXPECT_TRUE(EndedWell(status));
  EXPECT_EQ(TryElsewhere(), LockResult::kBusy) << "the child released nothing";
  EXPECT_EQ(Look(*dir, MakeTestEntry(3)), "hit");
  EXPECT_EQ(dir->Counters()[0], 1u);
  lock = StoreDir::KeyLock();
  EXPECT_EQ(TryElsewhere(), LockResult::kHeld);
}

TEST_F(StoreDirLock, AnOldLockOfTheParentDoesNotReleaseTheChildsOwn) {
  const auto dir = Open();
  auto lock = std::make_unique<StoreDir::KeyLock>();
  ASSERT_EQ(dir->TryLock(MakeTestEntry(1).action, *lock), LockResult::kHeld);
  int released[2];
  ASSERT_EQ(pipe(released), 0);
  const pid_t child = StartChild([&] {
    char word;
    (void)!read(released[0], &word, 1);
    StoreDir::KeyLock mine;
    EXPECT_EQ(dir->TryLock(MakeTestEntry(1).action, mine), LockResult::kHeld);
    lock.reset();
    EXPECT_EQ(TryElsewhere(), LockResult::kBusy);
  });
  lock.reset();
  (void)!write(released[1], "x", 1);
  EXPECT_TRUE(EndedWell(WaitFor(child)));
  close(released[0]);
  close(released[1]);
}

TEST_F(StoreDirLock, ForksWhileOtherThreadsLockAndCountBlockNobody) {
  const auto dir = Open();
  std::vector<Entry> entries;
  for (int i = 0; i < 8; ++i) entries.push_back(MakeTestEntry(i));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; !stop; ++i) {
        StoreDir::KeyLock lock;
        (void)dir->TryLock(entries[static_cast<std::size_t>(i) % 8].action, lock);
        dir->Count(0, 1);
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    const int status = InChild([&] {
      alarm(240);  // a deadlock ends as a failure
      StoreDir::KeyLock lock;
      (void)dir->TryLock(entries[0].action, lock);
      dir->Count(1, 1);
      (void)dir->reason();
    });
    ASSERT_TRUE(EndedWell(status)) << "round " << i;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(dir->Counters()[1], 100u);
  for (const Entry& entry : entries) {
    StoreDir::KeyLock lock;
    EXPECT_EQ(dir->TryLock(entry.action, lock), LockResult::kHeld);
  }
}

}  // namespace
}  // namespace tilewright::test
