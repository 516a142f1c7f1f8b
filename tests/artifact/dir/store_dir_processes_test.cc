#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/random.h"
#include "dir_fixture.h"
#include "entry_count.h"

namespace tilewright::test {
namespace {

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

TEST(StoreDirCosts, OpeningLooksAtNoEntryAndAHitReadsItsFileOnce) {
  const TempFolder folder(TempFolder::Place::kMemory);
  const std::string root = folder.Sub("s");
  FaultyFilesystem files;
  StoreDir::Options options;
  options.max_entries = 20000;
  options.max_bytes = std::uint64_t{2} << 30;
  options.files = &files;
  const auto calls = [&](const auto& work) {
    const std::int64_t before = files.calls();
    work();
    return files.calls() - before;
  };
  const auto fill = [&](int from, int to) {
    const auto dir = StoreDir::Open(root, {});
    for (int i = from; i < to; ++i) {
      const Entry entry = MakeTestEntry(i);
      ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
    }
  };
  fill(0, 1);
  const auto opening = [&] { ASSERT_TRUE(StoreDir::Open(root, options)); };
  const std::int64_t with_one = calls(opening);
  fill(1, 1500);
  const std::int64_t with_many = calls(opening);
  // A look at each shard, of which there are 256.
  EXPECT_LE(with_one, 60);
  EXPECT_LE(with_many, with_one + 256);

  const auto dir = StoreDir::Open(root, options);
  const Entry first = MakeTestEntry(4999);  // which counts all there are, once
  ASSERT_EQ(dir->Publish(first.action, first.bytes), StoreDir::Published::kNew);
  for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{150} << 10}) {
    const Entry entry = MakeTestEntry(5000 + static_cast<int>(bytes), bytes);
    EXPECT_LE(calls([&] {
                ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
              }),
              30);
    const std::int64_t read = files.bytes_read();
    EXPECT_LE(calls([&] { EXPECT_EQ(Look(*dir, entry), "hit"); }), 6);
    EXPECT_EQ(files.bytes_read() - read, static_cast<std::int64_t>(entry.bytes.size()));
  }
  EXPECT_EQ(calls([&] { dir->Count(0, 1); }), 1) << "a look whether the file is still whole";
  StoreDir::KeyLock lock;
  (void)dir->TryLock(MakeTestEntry(0).action, lock);
  lock = StoreDir::KeyLock();
  EXPECT_LE(calls([&] {
              (void)dir->TryLock(MakeTestEntry(0).action, lock);
              lock = StoreDir::KeyLock();
            }),
            4);
}

}  // namespace
}  // namespace tilewright::test
