#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "core/random.h"
#include "dir_fixture.h"
#include "entry_count.h"

/// Many at once: writers, readers, trimming and counting.

namespace tilewright::test {
namespace {

constexpr int kKeys = 60;
constexpr int kCap = 25;

std::vector<Entry> Entries() {
  std::vector<Entry> entries;
  for (int i = 0; i < kKeys; ++i) entries.push_back(MakeTestEntry(i, 2000));
  return entries;
}

/// One worker's part; whatever it finds must be right.
void Work(StoreDir& dir, const std::vector<Entry>& entries, std::uint64_t seed, int rounds,
          std::atomic<int>& wrong) {
  Random random(seed);
  for (int i = 0; i < rounds; ++i) {
    const Entry& entry = entries[random.Below(entries.size())];
    switch (random.Below(8)) {
      case 0:
      case 1:
      case 2:
        (void)dir.Publish(entry.action, entry.bytes);
        break;
      case 3:
        (void)dir.Trim(random.Below(4) == 0, false);
        break;
      case 4:
        (void)dir.Remove(entry.action);
        break;
      case 5:
        dir.Count(0, 1);
        break;
      default: {
        const StoreDir::Lookup lookup = dir.Find(entry.action);
        if (lookup.found ? lookup.found->bytes.view() != entry.bytes
                         : lookup.miss != MissReason::kAbsent) {
          ++wrong;
        }
      }
    }
  }
}

TEST(StoreDirStorm, ThreadsReadWriteAndEvictWithoutAWrongHit) {
  const TempFolder folder;
  StoreDir::Options options;
  options.max_entries = kCap;
  const auto dir = StoreDir::Open(folder.Sub("s"), options);
  const std::vector<Entry> entries = Entries();
  std::atomic<int> wrong{0};
  std::atomic<bool> stop{false};
  EntryCount count(folder.Sub("s"));
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { Work(*dir, entries, t + 1, 300, wrong); });
  }
  std::thread watcher([&] {
    while (!stop) {
      count.Update();
      (void)dir->GetTotals();
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  watcher.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(dir->GetTotals().entries, static_cast<std::uint64_t>(kCap));
  EXPECT_EQ(dir->GetTotals().quarantined, 0u);
  EXPECT_TRUE(NamesIn(folder.Sub("s/v1/tmp")).empty());
  EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite) << dir->reason();
  count.Update();
  if (!count.trouble().empty()) GTEST_SKIP() << "the cap at each moment: " << count.trouble();
  EXPECT_LE(count.most(), kCap);
  EXPECT_GT(count.most(), kCap / 2);
  EXPECT_EQ(dir->GetTotals().entries, static_cast<std::uint64_t>(count.now()));
}

}  // namespace
}  // namespace tilewright::test
