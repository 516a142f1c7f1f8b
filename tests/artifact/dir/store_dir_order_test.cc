// The order in which things reach the disk, and the totals after lost replies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "artifact/dir/counters_file.h"
#include "artifact/dir/total.h"
#include "dir_fixture.h"

namespace tilewright::test {
namespace {

namespace fs = std::filesystem;
using Call = FaultyFilesystem::Call;
using Event = FaultyFilesystem::Event;

/// Expects that what was renamed to `path` was written, synced and closed before, and its folder
/// synced after.
void ExpectDurable(const std::vector<Event>& events, Call rename, const std::string& path) {
  const std::size_t end = events.size();
  const std::size_t placed = PlaceOf(events, rename, path);
  ASSERT_LT(placed, end) << path << " was not put in place";
  const std::string temporary = events[placed].path;
  const std::size_t sync = PlaceOf(events, Call::kSync, temporary);
  EXPECT_LT(sync, placed) << "a power cut may leave an empty file in its place";
  EXPECT_LT(PlaceOf(events, Call::kWrite, temporary), sync);
  EXPECT_EQ(PlaceOf(events, Call::kWrite, temporary, sync), end) << "written after the sync";
  EXPECT_LT(PlaceOf(events, Call::kClose, temporary, sync), placed)
      << "a network file system reports a failed write when the file is closed";
  const std::string folder = fs::path(path).parent_path();
  const std::size_t after = PlaceOf(events, Call::kSync, folder, placed);
  ASSERT_LT(after, end) << "the name may be lost";
  EXPECT_EQ(events[after].path, folder);
  // The shard is new: its own name must last, too.
  const std::size_t made = PlaceOf(events, Call::kMakeDir, folder);
  ASSERT_LT(made, placed);
  const std::string above = fs::path(folder).parent_path();
  const std::size_t above_synced = PlaceOf(events, Call::kSync, above, made);
  ASSERT_LT(above_synced, placed) << "the folder of the file may be lost";
  EXPECT_EQ(events[above_synced].path, above);
}

TEST_F(StoreDirTest, ADurableFolderSyncsAFileBeforeItsRenameAndItsFolderAfter) {
  StoreDir::Options options;
  options.durable = true;
  const auto dir = OpenFaulty(options);
  const Entry entry = MakeTestEntry(1);
  files_.Record();
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  ExpectDurable(files_.events(), Call::kRenameNoReplace, EntryPath(root_, entry.action));
  files_.Record();
  ASSERT_EQ(dir->PublishNegative(entry.action, {"log", time(nullptr), "a", "r"}),
            StoreDir::Published::kNew);
  ExpectDurable(files_.events(), Call::kRename, NegativePath(root_, entry.action));
}

TEST_F(StoreDirTest, AnEntryThatCannotBeWrittenSyncedOrClosedIsNotPublished) {
  StoreDir::Options options;
  options.durable = true;
  const auto dir = OpenFaulty(options);
  const Entry entry = MakeTestEntry(1);
  for (const auto& [call, words] :
       {std::pair(Call::kWrite, "cannot write"), std::pair(Call::kSync, "cannot sync"),
        std::pair(Call::kClose, "cannot close")}) {
    files_.Arm({.kind = Fault::kError, .error = EIO, .only = call});
    std::string why;
    EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNot) << words;
    EXPECT_EQ(files_.fired(), 1);
    EXPECT_THAT(why, testing::HasSubstr(words));
    files_.Disarm();
    EXPECT_FALSE(fs::exists(EntryPath(root_, entry.action)));
    EXPECT_TRUE(NamesIn(root_ + "/v1/tmp").empty());
  }
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
}

TEST_F(StoreDirTest, AFolderThatNeedNotBeDurableSyncsNothing) {
  const auto dir = OpenFaulty();
  files_.Record();
  const Entry entry = MakeTestEntry(1);
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  const auto events = files_.events();
  EXPECT_LT(PlaceOf(events, Call::kRenameNoReplace, EntryPath(root_, entry.action)), events.size());
  EXPECT_EQ(PlaceOf(events, Call::kSync, ""), events.size());
}

class StoreDirTotals : public StoreDirTest {
 protected:
  std::unique_ptr<StoreDir> OpenCapped(std::uint64_t entries, FaultyFilesystem& files) {
    StoreDir::Options options;
    options.max_entries = entries;
    options.files = &files;
    return StoreDir::Open(root_, options);
  }
  std::unique_ptr<StoreDir> OpenCapped(std::uint64_t entries) {
    return OpenCapped(entries, files_);
  }
  std::uint64_t Word(CountersFile::Word word) const {
    const std::string file = ReadText(root_ + "/v1/counters");
    std::uint64_t value = 0;
    std::memcpy(&value, file.data() + 8 * static_cast<std::size_t>(word), sizeof value);
    return value;
  }
  /// Expects that the totals, if they are said to be known, are those of the files there are.
  void ExpectTotals(std::size_t files, const std::string& what) const {
    std::size_t there = 0;
    std::int64_t bytes = 0;
    for (const char* folder : {"entries", "quarantine"}) {
      for (const auto& item : fs::recursive_directory_iterator(root_ + "/v1/" + folder)) {
        if (!item.is_regular_file()) continue;
        ++there;
        bytes += static_cast<std::int64_t>(item.file_size());
      }
    }
    EXPECT_EQ(there, files) << what;
    EXPECT_EQ(kEntriesFormat.Value(Word(CountersFile::kEntries)), static_cast<std::int64_t>(files))
        << what;
    EXPECT_EQ(kBytesFormat.Value(Word(CountersFile::kEntryBytes)), bytes) << what;
  }
};

TEST_F(StoreDirTotals, StayRightWhenTheReplyToARenameIsLost) {
  int number = 0;
  for (const int error : {EIO, ESTALE, EEXIST, ENOENT, ENOTDIR, ETIMEDOUT}) {
    const Entry entry = MakeTestEntry(number++);
    const auto dir = OpenCapped(100);
    files_.Arm({.kind = Fault::kErrorAfter, .error = error, .only = Call::kRenameNoReplace});
    std::string why;
    EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNew)
        << strerrorname_np(error) << ": " << why;
    EXPECT_EQ(files_.fired(), 1);
    files_.Disarm();
    EXPECT_EQ(Look(*dir, entry), "hit");
    EXPECT_TRUE(NamesIn(root_ + "/v1/tmp").empty());
    ExpectTotals(static_cast<std::size_t>(number), strerrorname_np(error));
  }
}

TEST_F(StoreDirTotals, ALinkWhoseReplyWasLostIsThisPublicationAndLeavesOneName) {
  // As NFS repeats a request: the name exists, for this very request made it, and the temporary
  // name is still there.
  const Entry entry = MakeTestEntry(0);
  const auto dir = OpenCapped(100);
  files_.Arm({.kind = Fault::kHook, .only = Call::kRenameNoReplace, .hook = [&] {
                const std::string tmp = root_ + "/v1/tmp/";
                fs::create_hard_link(tmp + NamesIn(tmp).at(0), EntryPath(root_, entry.action));
              }});
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  files_.Disarm();
  EXPECT_TRUE(NamesIn(root_ + "/v1/tmp").empty());
  ExpectTotals(1, "one entry");
}

TEST_F(StoreDirTotals, AreCountedAnewWhereNobodyKnowsWhatARenameDid) {
  const Entry entry = MakeTestEntry(0), second = MakeTestEntry(1);
  {
    FaultyFilesystem inner;
    FaultyFilesystem outer(static_cast<Filesystem&>(inner));
    const auto dir = OpenCapped(1, outer);
    inner.Arm({.kind = Fault::kError,
               .error = EIO,
               .only = Call::kStatPath,
               .path_part = fs::path(EntryPath(root_, entry.action)).filename().string()});
    outer.Arm({.kind = Fault::kErrorAfter, .error = EIO, .only = Call::kRenameNoReplace});
    EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNot);
    EXPECT_EQ(inner.fired(), 1);
    EXPECT_EQ(outer.fired(), 1);
  }
  ASSERT_TRUE(fs::exists(EntryPath(root_, entry.action)));
  EXPECT_EQ(Word(CountersFile::kTotalsKnown), 0u);
  // Too small, they would let the cap be passed.
  EXPECT_EQ(OpenCapped(1)->Publish(second.action, second.bytes), StoreDir::Published::kNot);
  EXPECT_EQ(OpenCapped(2)->Publish(second.action, second.bytes), StoreDir::Published::kNew);
  ExpectTotals(2, "counted anew");
}

TEST_F(StoreDirTotals, StayRightWhenTheReplyToARemovalIsLost) {
  for (const int error : {EIO, ENOENT, ESTALE}) {
    const Entry entry = MakeTestEntry(0), second = MakeTestEntry(1);
    const auto dir = OpenCapped(100);
    ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
    files_.Arm({.kind = Fault::kErrorAfter, .error = error, .only = Call::kUnlink});
    (void)dir->Remove(entry.action);
    EXPECT_EQ(files_.fired(), 1);
    files_.Disarm();
    ASSERT_FALSE(fs::exists(EntryPath(root_, entry.action)));
    ASSERT_EQ(dir->Publish(second.action, second.bytes), StoreDir::Published::kNew);
    ExpectTotals(1, strerrorname_np(error));
    ASSERT_TRUE(dir->Remove(second.action));
  }
}

/// The files of a store that count.
std::size_t Files(const std::string& root) {
  std::size_t count = 0;
  for (const char* folder : {"/v1/entries", "/v1/quarantine"}) {
    for (const auto& item : fs::recursive_directory_iterator(root + folder)) {
      count += item.is_regular_file() ? 1 : 0;
    }
  }
  return count;
}

void Damage(const std::string& path) {
  std::string bytes = ReadText(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  WriteText(path, bytes);
}

TEST_F(StoreDirTotals, WhatIsSetAsideStaysUnderTheCaps) {
  constexpr int kCap = 4;
  const auto dir = OpenCapped(kCap);
  for (int i = 0; i < kCap; ++i) {
    const Entry entry = MakeTestEntry(i);
    ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
    Damage(EntryPath(root_, entry.action));
    ASSERT_TRUE(dir->Find(entry.action).quarantined);
    ExpectTotals(static_cast<std::size_t>(i) + 1, "set aside");
  }
  for (int i = 0; i < kCap; ++i) {
    const Entry entry = MakeTestEntry(100 + i);
    std::string why;
    ASSERT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNew) << why;
    EXPECT_LE(Files(root_), static_cast<std::size_t>(kCap)) << "what was set aside makes room";
    ExpectTotals(Files(root_), "room made");
  }
  EXPECT_EQ(dir->GetTotals().quarantined, 0u);
  EXPECT_EQ(dir->GetTotals().entries, 4u);
}

TEST_F(StoreDirTotals, TheOldestOfWhatIsSetAsideGoesFirstAndNoMoreThanNeeded) {
  const auto dir = OpenCapped(3);
  for (int i = 0; i < 2; ++i) {
    files_.SetNow(2'000'000'000 + i);
    const Entry entry = MakeTestEntry(i);
    ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
    Damage(EntryPath(root_, entry.action));
    ASSERT_TRUE(dir->Find(entry.action).quarantined);
  }
  const Entry second = MakeTestEntry(1);
  for (int i = 10; i < 12; ++i) {
    const Entry entry = MakeTestEntry(i);
    ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  }
  const auto left = NamesIn(root_ + "/v1/quarantine");
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].substr(0, 10), "2000000001");
}

TEST_F(StoreDirTotals, ASurveyAndATrimCountWhatIsSetAside) {
  for (int i = 0; i < 4; ++i) {
    const auto dir = OpenCapped(0);
    const Entry entry = MakeTestEntry(i);
    ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
    if (i % 2 != 0) continue;
    Damage(EntryPath(root_, entry.action));
    ASSERT_TRUE(dir->Find(entry.action).quarantined);
  }
  fs::remove(root_ + "/v1/counters");
  const auto dir = OpenCapped(4);
  EXPECT_EQ(dir->Trim(true, false).removed_entries, 0u) << "within the caps";
  ExpectTotals(4, "surveyed");
  const auto tight = OpenCapped(3);
  const auto would = tight->Trim(true, true);
  EXPECT_EQ(would.removed_quarantined, 2u);
  EXPECT_EQ(would.removed_entries, 0u);
  EXPECT_EQ(Files(root_), 4u) << "a dry run";
  const auto report = tight->Trim(true, false);  // to four fifths of 3: 2
  EXPECT_EQ(report.removed_quarantined, 2u);
  EXPECT_EQ(report.removed_entries, 0u);
  ExpectTotals(2, "trimmed");
}

TEST_F(StoreDirTotals, ARefusalThatIsSetAsideCountsAndPassesNoCap) {
  const Entry entry = MakeTestEntry(0);
  for (const std::uint64_t cap : {2, 1}) {
    const auto dir = OpenCapped(cap);
    (void)dir->Publish(entry.action, entry.bytes);
    ASSERT_EQ(dir->PublishNegative(entry.action, {"log", time(nullptr), "a", "r"}),
              StoreDir::Published::kNew);
    Damage(NegativePath(root_, entry.action));
    EXPECT_FALSE(dir->FindNegative(entry.action));
    EXPECT_FALSE(fs::exists(NegativePath(root_, entry.action)));
    ExpectTotals(cap, "a refusal set aside");
    fs::remove_all(root_ + "/v1/quarantine");
    fs::create_directory(root_ + "/v1/quarantine");
    fs::permissions(root_ + "/v1/quarantine", fs::perms::owner_all);
    fs::remove(root_ + "/v1/counters");
    (void)OpenCapped(cap)->Trim(true, false);
  }
}

TEST_F(StoreDirTotals, TheSweepTakesOffWhatItRemoves) {
  const auto dir = OpenCapped(10);
  const Entry entry = MakeTestEntry(0), other = MakeTestEntry(1);
  files_.SetNow(2'000'000'000);
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  ASSERT_EQ(dir->Publish(other.action, other.bytes), StoreDir::Published::kNew);
  Damage(EntryPath(root_, entry.action));
  ASSERT_TRUE(dir->Find(entry.action).quarantined);
  files_.SetNow(2'000'000'000 + 8 * 86400);
  EXPECT_EQ(dir->Sweep(false).removed_quarantined, 1u);
  ExpectTotals(1, "swept");
}

}  // namespace
}  // namespace tilewright::test
