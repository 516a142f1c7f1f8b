#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/faulty_filesystem.h"
#include "dir_fixture.h"

namespace tilewright::test {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kNow = 2'000'000'000;
constexpr std::int64_t kHour = 3600, kDay = 24 * kHour;

class StoreDirTrim : public StoreDirTest {
 protected:
  StoreDirTrim() { files_.SetNow(kNow); }

  std::unique_ptr<StoreDir> OpenCapped(std::uint64_t entries, std::uint64_t bytes = 0) {
    StoreDir::Options options;
    options.max_entries = entries;
    options.max_bytes = bytes;
    return OpenFaulty(options);
  }
  /// Entries 0 to count - 1; number i was used i hours after kNow - 100 days.
  void Fill(int count) {
    const auto dir = OpenCapped(0);
    for (int i = 0; i < count; ++i) {
      const Entry entry = MakeTestEntry(i);
      ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
      SetStamp(EntryPath(root_, entry.action), kNow - 100 * kDay + i * kHour);
    }
  }
  /// Publishes until there is no room; nothing is old enough to go.
  static void FillToTheCap(StoreDir& dir, const std::vector<Entry>& entries) {
    int refused = 0;
    for (const Entry& entry : entries) {
      if (dir.Publish(entry.action, entry.bytes) == StoreDir::Published::kNot) ++refused;
    }
    EXPECT_GT(refused, 0);
  }
  std::vector<int> Left(int count) {
    std::vector<int> left;
    for (int i = 0; i < count; ++i) {
      if (fs::exists(EntryPath(root_, MakeTestEntry(i).action))) left.push_back(i);
    }
    return left;
  }
};

TEST_F(StoreDirTrim, TrimsToFourFifthsLeastRecentlyUsedFirst) {
  Fill(12);
  SetStamp(EntryPath(root_, MakeTestEntry(0).action), kNow - kHour);  // old, but used
  const auto dir = OpenCapped(10);
  const auto would = dir->Trim(false, true);
  EXPECT_EQ(would.removed_entries, 4u);
  EXPECT_EQ(Left(12).size(), 12u) << "a dry run";
  const auto report = dir->Trim(false, false);
  EXPECT_EQ(report.removed_entries, 4u);
  EXPECT_EQ(report.removed_bytes, would.removed_bytes);
  EXPECT_EQ(Left(12), (std::vector<int>{0, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(dir->GetTotals().entries, 8u);
}

TEST_F(StoreDirTrim, TheCapOfBytesCountsToo) {
  Fill(10);
  const std::uint64_t each = MakeTestEntry(0).bytes.size();
  EXPECT_EQ(OpenCapped(0, 9 * each)->Trim(false, false).removed_entries, 3u);
  EXPECT_EQ(Left(10), (std::vector<int>{3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(StoreDirTrim, BelowTheCapsNothingGoes) {
  Fill(10);
  EXPECT_EQ(OpenCapped(10)->Trim(false, false).removed_entries, 0u);
  EXPECT_EQ(OpenCapped(10)->Trim(true, false).removed_entries, 0u);
  EXPECT_EQ(OpenCapped(0)->Trim(true, false).removed_entries, 0u);
}

TEST_F(StoreDirTrim, WhatWasJustUsedStaysUnlessForced) {
  Fill(6);
  for (int i = 0; i < 6; ++i) {
    SetStamp(EntryPath(root_, MakeTestEntry(i).action), kNow - 599 + i);
  }
  const auto dir = OpenCapped(2);
  EXPECT_EQ(dir->Trim(false, false).removed_entries, 0u);
  const Entry seventh = MakeTestEntry(6);
  std::string why;
  EXPECT_EQ(dir->Publish(seventh.action, seventh.bytes, &why), StoreDir::Published::kNot);
  EXPECT_NE(why.find("in addition to 6 entries of at most 2 and " +
                     std::to_string(6 * MakeTestEntry(0).bytes.size()) + " bytes: "),
            std::string::npos)
      << why;
  EXPECT_EQ(dir->Trim(true, false).removed_entries, 5u);
  EXPECT_EQ(Left(6), std::vector<int>{5});
}

TEST_F(StoreDirTrim, AUseRefreshesTheStampAtMostOnceAnHour) {
  Fill(1);
  const Entry entry = MakeTestEntry(0);
  const std::string path = EntryPath(root_, entry.action);
  const auto dir = OpenCapped(0);
  EXPECT_EQ(Look(*dir, entry), "hit");
  EXPECT_EQ(StampOf(path), kNow);
  files_.SetNow(kNow + kHour - 1);
  EXPECT_EQ(Look(*dir, entry), "hit");
  EXPECT_EQ(StampOf(path), kNow);
  files_.SetNow(kNow + kHour);
  EXPECT_EQ(Look(*dir, entry), "hit");
  EXPECT_EQ(StampOf(path), kNow + kHour);
}

TEST_F(StoreDirTrim, AStampFromTheFutureCountsAsNow) {
  Fill(4);
  SetStamp(EntryPath(root_, MakeTestEntry(0).action), kNow + 1000 * kDay);
  const auto dir = OpenCapped(3);
  EXPECT_EQ(dir->Trim(false, false).removed_entries, 2u);
  EXPECT_EQ(Left(4), (std::vector<int>{0, 3}));
  EXPECT_EQ(StampOf(EntryPath(root_, MakeTestEntry(0).action)), kNow)
      << "or it would outlive all others for 1000 days";
}

TEST_F(StoreDirTrim, AClockThatWasSetBackStopsNothing) {
  Fill(4);
  const auto dir = OpenCapped(3);
  EXPECT_EQ(dir->Trim(false, false).removed_entries, 2u);
  files_.SetNow(kNow - 200 * kDay);
  for (int i = 10; i < 13; ++i) {
    const Entry entry = MakeTestEntry(i);
    const auto published = dir->Publish(entry.action, entry.bytes);
    // All is young, seen from there: what finds no room is not stored.
    EXPECT_EQ(published, i == 10 ? StoreDir::Published::kNew : StoreDir::Published::kNot);
  }
  files_.SetNow(kNow - 200 * kDay + kHour);
  const Entry entry = MakeTestEntry(13);
  std::string why;
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNew) << why;
}

TEST_F(StoreDirTrim, WhatComesAndGoesDuringASurveyDoesNotLoseCount) {
  Fill(7);
  std::vector<Entry> entries;
  for (int i = 0; i < 40; ++i) entries.push_back(MakeTestEntry(i));
  const auto by_place = [](const Entry& a, const Entry& b) {
    return EntryPath("", a.action) < EntryPath("", b.action);
  };
  const Entry last = *std::max_element(entries.begin(), entries.begin() + 7, by_place);
  const Entry first = *std::min_element(entries.begin() + 7, entries.end(), by_place);
  ASSERT_TRUE(by_place(first, last));
  // One comes where the survey has been and one goes where it will be: it misses both, while the
  // number of entries is the same before and after.
  const auto other = OpenCapped(0);
  const auto dir = OpenCapped(10);
  files_.Arm({.kind = Fault::kHook,
              .only = FaultyFilesystem::Call::kStatPath,
              .path_part = EntryPath("", last.action),
              .hook = [&] {
                EXPECT_EQ(other->Publish(first.action, first.bytes), StoreDir::Published::kNew);
                EXPECT_TRUE(other->Remove(last.action));
              }});
  (void)dir->Trim(true, false);
  EXPECT_EQ(files_.fired(), 1);
  files_.Disarm();
  FillToTheCap(*dir, entries);
  EXPECT_EQ(dir->GetTotals().entries, 10u);
}

TEST_F(StoreDirTrim, AnEntryIsKeptThoughOthersPublishDuringManySurveys) {
  Fill(3);
  const auto other = OpenCapped(0);
  const auto dir = OpenCapped(1000);
  int published = 0;
  constexpr int kOthers = 12;
  files_.Arm({.kind = Fault::kHook,
              .lasting = true,
              .only = FaultyFilesystem::Call::kList,
              .path_part = "/v1/tmp",
              .hook = [&] {
                if (published == kOthers) return;
                const Entry entry = MakeTestEntry(100 + published++);
                EXPECT_EQ(other->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
              }});
  const Entry entry = MakeTestEntry(50);
  std::string why;
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNew) << why;
  files_.Disarm();
  EXPECT_EQ(published, kOthers);
  EXPECT_EQ(dir->GetTotals().entries, 3u + kOthers + 1u);
}

class StoreDirTrimDuring : public StoreDirTrim, public testing::WithParamInterface<int> {};

/// Another survey at each of the looks at the counters' file, before and after the entry goes.
TEST_P(StoreDirTrimDuring, ARemovalDoesNotTakeTheEntryOffTwice) {
  Fill(9);
  const auto dir = OpenCapped(10);
  const auto other = OpenCapped(10);
  (void)dir->Trim(true, false);
  files_.Arm({.kind = Fault::kHook,
              .step = GetParam(),
              .only = FaultyFilesystem::Call::kStatFd,
              .hook = [&] { (void)other->Trim(true, false); }});
  EXPECT_TRUE(dir->Remove(MakeTestEntry(3).action));
  files_.Disarm();
  std::vector<Entry> entries;
  for (int i = 20; i < 40; ++i) entries.push_back(MakeTestEntry(i));
  FillToTheCap(*dir, entries);
  EXPECT_LE(dir->GetTotals().entries, 10u);
  EXPECT_GE(dir->GetTotals().entries, 9u) << "the totals may be too large, by this one";
}

INSTANTIATE_TEST_SUITE_P(AllLooks, StoreDirTrimDuring, testing::Range(1, 7));

TEST_F(StoreDirTrim, OneTrimAMinute) {
  Fill(6);
  const auto dir = OpenCapped(5);
  EXPECT_EQ(dir->Trim(false, false).removed_entries, 2u);
  for (int i = 10; i < 14; ++i) {
    const Entry entry = MakeTestEntry(i);
    const auto unlimited = OpenCapped(0);
    (void)unlimited->Publish(entry.action, entry.bytes);
    SetStamp(EntryPath(root_, entry.action), kNow - kDay);
  }
  EXPECT_EQ(dir->Trim(false, false).removed_entries, 0u);
  EXPECT_EQ(OpenCapped(5)->Trim(false, false).removed_entries, 0u) << "all processes count";
  files_.SetNow(kNow + 61);
  EXPECT_EQ(dir->Trim(false, false).removed_entries, 4u);
}

TEST_F(StoreDirTrim, OneTrimAtATime) {
  Fill(6);
  const pid_t child = StartChild([&] {
    const auto dir = OpenCapped(5);
    Fault fault;
    fault.kind = Fault::kHook;
    fault.only = FaultyFilesystem::Call::kUnlink;
    fault.hook = [] { raise(SIGSTOP); };
    files_.Arm(fault);
    (void)dir->Trim(false, false);
  });
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  files_.SetNow(kNow + 100);  // so that it is not the minute that stops the second
  EXPECT_EQ(OpenCapped(5)->Trim(false, false).removed_entries, 0u) << "and it does not wait";
  kill(child, SIGKILL);
  (void)WaitFor(child);
  EXPECT_EQ(OpenCapped(5)->Trim(false, false).removed_entries, 2u) << "the lock died with it";
}

TEST_F(StoreDirTrim, PublishMakesRoomForItself) {
  Fill(5);
  const auto dir = OpenCapped(5);
  const Entry entry = MakeTestEntry(50);
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  EXPECT_EQ(Left(5), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(dir->GetTotals().entries, 5u);
  // Now everything is there for a minute; the next one is not stored, and says why.
  const Entry next = MakeTestEntry(51);
  std::string why;
  EXPECT_EQ(dir->Publish(next.action, next.bytes, &why), StoreDir::Published::kNot);
  EXPECT_NE(why.find("no room"), std::string::npos) << why;
  EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite);
}

TEST_F(StoreDirTrim, AnEntryLargerThanTheCapIsNotStoredAndEvictsNothing) {
  Fill(3);
  const auto dir = OpenCapped(0, 20000);
  const Entry large = MakeTestEntry(60, 30000);
  std::string why;
  EXPECT_EQ(dir->Publish(large.action, large.bytes, &why), StoreDir::Published::kNot);
  EXPECT_NE(why.find("more than the cap of 20000"), std::string::npos) << why;
  EXPECT_EQ(Left(3).size(), 3u);
}

TEST_F(StoreDirTrim, TotalsThatDriftedAreCountedAgain) {
  Fill(5);
  const auto dir = OpenCapped(5);
  EXPECT_EQ(dir->Trim(true, false).removed_entries, 0u);
  fs::remove_all(root_ + "/v1/entries");  // by hand: the totals still say 5
  fs::create_directory(root_ + "/v1/entries");
  chmod((root_ + "/v1/entries").c_str(), 0700);
  files_.SetNow(kNow + 61);
  for (int i = 20; i < 25; ++i) {
    const Entry entry = MakeTestEntry(i);
    std::string why;
    EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNew) << why;
  }
  // The file of the totals is gone as well.
  fs::remove(root_ + "/v1/counters");
  const Entry sixth = MakeTestEntry(26);
  EXPECT_EQ(OpenCapped(5)->Publish(sixth.action, sixth.bytes), StoreDir::Published::kNot);
}

// ---------------------------------------------------------------- sweeping

TEST_F(StoreDirTrim, TemporaryFilesOfDeadProcessesAreSweptThoseOfOthersAfterADay) {
  const auto dir = OpenCapped(0);
  const ProcessIdentity self = ProcessIdentity::Current();
  const pid_t dead = StartChild([] {});
  (void)WaitFor(dead);
  const auto plant = [&](const std::string& host, const std::string& boot, std::int64_t pid,
                         std::int64_t stamp) {
    const std::string name = host + "." + boot + "." + std::to_string(pid) + ".00ff";
    std::string path = root_ + "/v1/tmp/" + name + std::to_string(stamp);
    WriteText(path, "part of an entry");
    SetStamp(path, stamp);
    return path;
  };
  const std::vector<std::string> gone = {
      plant(self.host, self.boot, dead, kNow),
      plant("otherhost", self.boot, dead, kNow - kDay - 1),
      plant(self.host, self.boot, getpid(), kNow - kDay - 2),
      plant("odd name", "", 0, kNow - 2 * kDay),
      plant("otherhost", self.boot, dead, kNow + 2 * kDay),
  };
  const std::vector<std::string> kept = {
      plant(self.host, self.boot, getpid(), kNow - kHour),
      plant(self.host, self.boot, 1, kNow - kHour),
      plant("otherhost", self.boot, dead, kNow - kHour),  // the same number on another host
      plant(self.host, "otherboot", dead, kNow - kHour),  // ... in another container
      plant(self.host, self.boot, 0, kNow),
      plant(self.host, self.boot, -5, kNow),
      plant("odd name", "", 1, kNow),
  };
  EXPECT_EQ(dir->Sweep(true).removed_temporaries, gone.size());
  EXPECT_EQ(NamesIn(root_ + "/v1/tmp").size(), gone.size() + kept.size());
  EXPECT_EQ(dir->Sweep(false).removed_temporaries, gone.size());
  for (const std::string& path : gone) EXPECT_FALSE(fs::exists(path)) << path;
  for (const std::string& path : kept) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(StoreDirTrim, TwoHostsWithOneProcessNumberDoNotTouchEachOthersFiles) {
  const pid_t dead = StartChild([] {});
  (void)WaitFor(dead);
  StoreDir::Options here, there;
  here.process = {"aaaa", "0001", dead};
  there.process = {"bbbb", "0001", dead};
  const auto one = StoreDir::Open(root_, here);
  // The other dies, or stands still, in the middle of publishing.
  const Entry entry = MakeTestEntry(1);
  ASSERT_TRUE(WasKilled(InChild([&] {
    FaultyFilesystem files;
    there.files = &files;
    const auto two = StoreDir::Open(root_, there);
    Fault fault;
    fault.kind = Fault::kKill;
    fault.only = FaultyFilesystem::Call::kRenameNoReplace;
    files.Arm(fault);
    (void)two->Publish(entry.action, entry.bytes);
  })));
  ASSERT_EQ(NamesIn(root_ + "/v1/tmp").size(), 1u);
  EXPECT_EQ(one->Sweep(false).removed_temporaries, 0u) << "nothing is known of that process";
  there.files = nullptr;
  EXPECT_EQ(StoreDir::Open(root_, there)->Sweep(false).removed_temporaries, 1u);
}

TEST_F(StoreDirTrim, APublisherWhoseTemporaryFileWasSweptPublishesAllTheSame) {
  const auto dir = OpenCapped(0);
  const Entry entry = MakeTestEntry(1);
  Fault fault;
  fault.kind = Fault::kHook;
  fault.only = FaultyFilesystem::Call::kRenameNoReplace;
  fault.hook = [&] {
    for (const std::string& name : NamesIn(root_ + "/v1/tmp"))
      fs::remove(root_ + "/v1/tmp/" + name);
  };
  files_.Arm(fault);
  std::string why;
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNew) << why;
  EXPECT_EQ(files_.fired(), 1);
  EXPECT_EQ(Look(*dir, entry), "hit");
}

TEST_F(StoreDirTrim, QuarantineIsKeptAWeekAndBounded) {
  const auto dir = OpenCapped(0);
  const std::string quarantine = root_ + "/v1/quarantine/";
  for (int i = 0; i < 70; ++i) {
    WriteText(quarantine + std::to_string(kNow - i * 1000) + ".x." + std::to_string(i), "x");
  }
  WriteText(quarantine + std::to_string(kNow - 8 * kDay) + ".x", "x");
  WriteText(quarantine + "no number", "x");
  fs::create_directory(quarantine + std::to_string(kNow - 9 * kDay) + ".folder");
  EXPECT_EQ(dir->Sweep(false).removed_quarantined, 9u);
  EXPECT_EQ(NamesIn(quarantine).size(), 64u);
  EXPECT_EQ(dir->Sweep(false).removed_quarantined, 0u);
}

TEST_F(StoreDirTrim, RefusalsAreKeptForTheirTimeAndBounded) {
  const auto dir = OpenCapped(0);
  const auto path = [&](int i) {
    char hex[65];
    std::snprintf(hex, sizeof hex, "%064x", i);
    return root_ + "/v1/neg/00/" + (hex + 2) + ".twn";
  };
  fs::create_directories(root_ + "/v1/neg/00");
  constexpr int kKept = 4096;
  for (int i = 0; i < kKept + 7; ++i) {
    WriteText(path(i), "x");
    SetStamp(path(i), kNow - (i == 30 ? 2 * kDay : i < 5 ? 100 + i : 1));
  }
  // The one that is too old, and of the others the six least recent.
  EXPECT_EQ(dir->Sweep(true).removed_negative, 7u);
  EXPECT_EQ(dir->Sweep(false).removed_negative, 7u);
  EXPECT_EQ(dir->GetTotals().negative, static_cast<std::uint64_t>(kKept));
  for (const int gone : {0, 1, 2, 3, 4, 30}) EXPECT_FALSE(fs::exists(path(gone))) << gone;
}

TEST_F(StoreDirTrim, RefusalsSweepOnceAnHourToo) {
  const auto dir = OpenCapped(0);
  const std::string left = root_ + "/v1/tmp/a.b.1.0";
  ASSERT_EQ(dir->PublishNegative(MakeTestEntry(1).action, {"log", kNow, "a", "r"}),
            StoreDir::Published::kNew);
  WriteText(left, "x");
  SetStamp(left, 1000);
  files_.SetNow(kNow + kHour);
  ASSERT_EQ(dir->PublishNegative(MakeTestEntry(2).action, {"log", kNow, "a", "r"}),
            StoreDir::Published::kNew);
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(StoreDirTrim, WithoutABootIdNoProcessIsKnownToBeDead) {
  const pid_t dead = StartChild([] {});
  (void)WaitFor(dead);
  StoreDir::Options options;
  options.files = &files_;
  options.process = {
      .host = "aaaaaaaaaaaa", .boot = std::string(ProcessIdentity::kUnknown), .pid = getpid()};
  const auto dir = StoreDir::Open(root_, options);
  const std::string left = root_ + "/v1/tmp/aaaaaaaaaaaa.000000000000." + std::to_string(dead) +
                           ".0123456789abcdef0123456789abcdef";
  WriteText(left, "x");
  SetStamp(left, kNow);
  EXPECT_EQ(dir->Sweep(false).removed_temporaries, 0u);
  files_.SetNow(kNow + kDay + 1);
  EXPECT_EQ(dir->Sweep(false).removed_temporaries, 1u);
}

TEST_F(StoreDirTrim, PublishSweepsOnceAnHour) {
  const auto dir = OpenCapped(0);
  const Entry one = MakeTestEntry(1), two = MakeTestEntry(2);
  const std::string left = root_ + "/v1/tmp/a.b.1.0";
  ASSERT_EQ(dir->Publish(one.action, one.bytes), StoreDir::Published::kNew);
  WriteText(left, "x");
  SetStamp(left, 1000);
  ASSERT_EQ(dir->Publish(two.action, two.bytes), StoreDir::Published::kNew);
  EXPECT_TRUE(fs::exists(left));
  files_.SetNow(kNow + kHour);
  const Entry three = MakeTestEntry(3);
  ASSERT_EQ(dir->Publish(three.action, three.bytes), StoreDir::Published::kNew);
  EXPECT_FALSE(fs::exists(left));
}

}  // namespace
}  // namespace tilewright::test
