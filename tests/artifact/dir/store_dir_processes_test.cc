#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/random.h"
#include "core/sha256.h"
#include "dir_fixture.h"
#include "entry_count.h"

namespace tilewright::test {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

TEST(StoreDirProcesses, TheCapsHoldWhileManyWriteAndSomeAreKilled) {
  const TempFolder folder(TempFolder::Place::kMemory);
  const std::string root = folder.Sub("s");
  constexpr int kCap = 30, kKeys = 200, kWriters = 6;
  StoreDir::Options options;
  options.max_entries = kCap;
  options.max_bytes = kCap * MakeTestEntry(0).bytes.size();
  const auto dir = StoreDir::Open(root, options);
  std::vector<Entry> entries;
  for (int i = 0; i < kKeys; ++i) entries.push_back(MakeTestEntry(i));
  EntryCount count(root);
  std::vector<pid_t> children;
  for (int c = 0; c < kWriters; ++c) {
    children.push_back(StartChild([&, c] {
      const auto mine = StoreDir::Open(root, options);
      Random random(static_cast<std::uint64_t>(c) + 1);
      // Two work until they are killed. They pause after what the list of `count` could hold.
      const bool doomed = c < 2;
      for (int i = 0; i < (doomed ? 2000 : 400); ++i) {
        const Entry& entry = entries[random.Below(kKeys)];
        (void)mine->Publish(entry.action, entry.bytes);
        const auto lookup = mine->Find(entries[random.Below(kKeys)].action);
        EXPECT_TRUE(lookup.found || lookup.miss == MissReason::kAbsent) << lookup.detail;
        if (i % 50 == 49) (void)mine->Trim(true, false);
      }
      if (doomed) {
        for (;;) pause();
      }
    }));
  }
  for (int i = 0; i < 100; ++i) {
    count.Update();
    (void)dir->GetTotals();
    if (i == 50) {
      kill(children[0], SIGKILL);
      kill(children[1], SIGKILL);
    }
  }
  for (int c = 0; c < kWriters; ++c) {
    const int status = WaitFor(children[static_cast<std::size_t>(c)]);
    EXPECT_TRUE(c < 2 ? WasKilled(status) : EndedWell(status)) << c;
  }
  EXPECT_LE(dir->GetTotals().entries, static_cast<std::uint64_t>(kCap));
  EXPECT_EQ(dir->GetTotals().quarantined, 0u);
  EXPECT_LE(dir->GetTotals().bytes, options.max_bytes);
  (void)dir->Sweep(false);
  EXPECT_TRUE(NamesIn(root + "/v1/tmp").empty());
  count.Update();
  if (!count.trouble().empty()) GTEST_SKIP() << "the caps at each moment: " << count.trouble();
  EXPECT_LE(count.most(), kCap);
  EXPECT_GT(count.most(), 5);
  EXPECT_EQ(dir->GetTotals().entries, static_cast<std::uint64_t>(count.now()));
}

TEST(StoreDirProcesses, OfManyThatPublishOneKeyOneIsFirst) {
  const TempFolder folder(TempFolder::Place::kMemory);
  const std::string root = folder.Sub("s");
  constexpr int kKeys = 40, kWriters = 6;
  std::vector<Entry> entries;
  for (int i = 0; i < kKeys; ++i) entries.push_back(MakeTestEntry(i));
  std::vector<pid_t> children;
  for (int c = 0; c < kWriters; ++c) {
    children.push_back(StartChild([&] {
      const auto dir = StoreDir::Open(root, {});  // also the first opening is a race
      for (const Entry& entry : entries) {
        std::string why;
        const auto published = dir->Publish(entry.action, entry.bytes, &why);
        EXPECT_NE(published, StoreDir::Published::kNot) << why;
        dir->Count(published == StoreDir::Published::kNew ? 0 : 1, 1);
        EXPECT_EQ(Look(*dir, entry), "hit");
      }
    }));
  }
  for (const pid_t child : children) EXPECT_TRUE(EndedWell(WaitFor(child)));
  const auto counters = StoreDir::Open(root, {})->Counters();
  EXPECT_EQ(counters[0], static_cast<std::uint64_t>(kKeys));
  EXPECT_EQ(counters[1], static_cast<std::uint64_t>(kKeys) * (kWriters - 1));
}

/// The best of fifty, which other work on the machine does not reach; the numbers proper are in
/// docs/artifact_store.md.
TEST(StoreDirSpeed, OpeningAThousandEntriesAndAHitOfA150KiBFile) {
  const TempFolder folder;
  const std::string root = folder.Sub("s");
  const Entry large = MakeTestEntry(5000, 150 << 10);
  {
    const auto dir = StoreDir::Open(root, {});
    for (int i = 0; i < 1000; ++i) {
      const Entry entry = MakeTestEntry(i);
      ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
    }
    ASSERT_EQ(dir->Publish(large.action, large.bytes), StoreDir::Published::kNew);
  }
  StoreDir::Options options;
  options.max_entries = 20000;
  options.max_bytes = std::uint64_t{2} << 30;
  std::vector<double> open_us, find_us, digest_us, count_us, lock_us, publish_us;
  for (int i = 0; i < 50; ++i) {
    auto start = Clock::now();
    const auto dir = StoreDir::Open(root, options);
    open_us.push_back(MicrosecondsSince(start));
    start = Clock::now();
    const auto lookup = dir->Find(large.action);
    find_us.push_back(MicrosecondsSince(start));
    ASSERT_TRUE(lookup.found);
    start = Clock::now();
    ASSERT_TRUE(Sha256(large.bytes));
    digest_us.push_back(MicrosecondsSince(start));
    start = Clock::now();
    for (int k = 0; k < 100; ++k) dir->Count(0, 1);
    count_us.push_back(MicrosecondsSince(start) / 100);
    StoreDir::KeyLock lock;
    (void)dir->TryLock(large.action, lock);
    lock = StoreDir::KeyLock();
    start = Clock::now();
    (void)dir->TryLock(large.action, lock);
    lock = StoreDir::KeyLock();
    lock_us.push_back(MicrosecondsSince(start));
    const Entry fresh = MakeTestEntry(6000 + i, 150 << 10);
    start = Clock::now();
    ASSERT_EQ(dir->Publish(fresh.action, fresh.bytes), StoreDir::Published::kNew);
    publish_us.push_back(MicrosecondsSince(start));
  }
  const auto best = [](const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  };
  std::printf(
      "open %.0f us, find %.0f us (SHA-256 of it %.0f us), publish %.0f us, count %.2f us, "
      "lock %.2f us (best of 50)\n",
      best(open_us), best(find_us), best(digest_us), best(publish_us), best(count_us),
      best(lock_us));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(best(open_us), 5000);
  // 200 us where the processor has instructions for SHA-256; without them that alone takes longer.
  EXPECT_LE(best(find_us), best(digest_us) + 200);
#endif
}

}  // namespace
}  // namespace tilewright::test
