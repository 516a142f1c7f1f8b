#include "engine/artifact/dir/store_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "dir_fixture.h"
#include "faulty_filesystem.h"

namespace tilewright::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
namespace fs = std::filesystem;

std::unique_ptr<StoreDir> OpenDir(const std::string& root) { return StoreDir::Open(root, {}); }

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

class StoreDirTest : public testing::Test {
 protected:
  TempFolder folder_;
  const std::string root_ = folder_.Sub("deep/er/store");
};

TEST_F(StoreDirTest, WhatIsPublishedIsFoundByThisAndTheNextProcess) {
  const Entry entry = MakeTestEntry(1);
  const auto dir = OpenDir(root_);
  ASSERT_EQ(dir->state(), StoreDir::State::kReadWrite) << dir->reason();
  EXPECT_EQ(dir->reason(), "");
  EXPECT_EQ(Look(*dir, entry), "absent ");
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  EXPECT_EQ(Look(*dir, entry), "hit");
  EXPECT_TRUE(EndedWell(InChild([&] { EXPECT_EQ(Look(*OpenDir(root_), entry), "hit"); })));
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kLost);
  EXPECT_THAT(NamesIn(root_ + "/v1/tmp"), IsEmpty());
}

TEST_F(StoreDirTest, ALostPublicationKeepsTheFirstBytes) {
  const Entry first = MakeTestEntry(1, 300), second = MakeTestEntry(1, 400);
  ASSERT_EQ(first.action, second.action);
  const auto dir = OpenDir(root_);
  ASSERT_EQ(dir->Publish(first.action, first.bytes), StoreDir::Published::kNew);
  ASSERT_EQ(dir->Publish(first.action, second.bytes), StoreDir::Published::kLost);
  EXPECT_EQ(Look(*dir, first), "hit");
  ASSERT_TRUE(dir->Remove(first.action));
  EXPECT_TRUE(dir->Remove(first.action)) << "nothing to remove is well";
  ASSERT_EQ(dir->Publish(first.action, second.bytes), StoreDir::Published::kNew);
  EXPECT_EQ(Look(*dir, second), "hit");
}

TEST_F(StoreDirTest, TheBytesOfALookupOutliveTheFileAndTheStore) {
  const Entry entry = MakeTestEntry(1, 100000);
  auto dir = OpenDir(root_);
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  StoreDir::Lookup lookup = dir->Find(entry.action);
  ASSERT_TRUE(lookup.found);
  const StoreDir::Found found = std::move(*lookup.found);
  WriteText(EntryPath(root_, entry.action), "");  // truncated in place: would fault in a mapping
  dir.reset();
  EXPECT_EQ(found.bytes.view(), entry.bytes);
  EXPECT_EQ(found.data.cubin.size(), 100000u);
  EXPECT_EQ(found.data.cubin.data() - found.bytes.view().data() < 200000, true);
}

TEST_F(StoreDirTest, BytesThatAreNoEntryOfTheKeyAreNotStored) {
  const Entry one = MakeTestEntry(1), two = MakeTestEntry(2);
  const auto dir = OpenDir(root_);
  std::string why;
  EXPECT_EQ(dir->Publish(one.action, two.bytes, &why), StoreDir::Published::kNot);
  EXPECT_THAT(why, HasSubstr(two.action.Hex()));
  EXPECT_EQ(dir->Publish(one.action, "", &why), StoreDir::Published::kNot);
  EXPECT_EQ(dir->Publish(one.action, one.bytes.substr(1), &why), StoreDir::Published::kNot);
  EXPECT_EQ(dir->GetTotals().entries, 0u);
  EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite);
}

TEST_F(StoreDirTest, TheLayoutIsThatOfTheDocument) {
  umask(0);  // nothing may depend on it
  const Entry entry = MakeTestEntry(1);
  const auto dir = OpenDir(root_ + "//");
  (void)dir->Publish(entry.action, entry.bytes);
  umask(022);
  EXPECT_EQ(NamesIn(root_), std::vector<std::string>{"v1"});
  EXPECT_THAT(NamesIn(root_ + "/v1"),
              testing::ElementsAre("CACHEDIR.TAG", "counters", "entries", "format", "lock", "neg",
                                   "quarantine", "tmp"));
  EXPECT_EQ(ReadText(root_ + "/v1/format"), "tilewright artifacts 1\n");
  EXPECT_THAT(ReadText(root_ + "/v1/CACHEDIR.TAG"),
              testing::StartsWith("Signature: 8a477f597d28d172789f06886806bc55"));
  EXPECT_EQ(fs::file_size(root_ + "/v1/counters"), 4096u);
  for (const auto& item : fs::recursive_directory_iterator(folder_.path())) {
    EXPECT_EQ(ModeOf(item.path()), item.is_directory() ? 0700u : 0600u) << item.path();
  }
  EXPECT_EQ(ReadText(EntryPath(root_, entry.action)), entry.bytes);
}

// ---------------------------------------------------------------- damage

struct Planted {
  std::string name;
  std::function<void(const std::string& path)> plant;  // in the place of a sound entry
};

std::vector<Planted> Plants() {
  return {
      {"zero length", [](const std::string& path) { WriteText(path, ""); }},
      {"truncated",
       [](const std::string& path) { fs::resize_file(path, fs::file_size(path) / 2); }},
      {"one bit",
       [](const std::string& path) {
         std::string bytes = ReadText(path);
         bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 4);
         WriteText(path, bytes);
       }},
      {"one byte more", [](const std::string& path) { WriteText(path, ReadText(path) + "x"); }},
      {"text", [](const std::string& path) { WriteText(path, "this is no kernel"); }},
      {"another entry", [](const std::string& path) { WriteText(path, MakeTestEntry(2).bytes); }},
      {"hard link to another entry",
       [](const std::string& path) {
         const std::string other = path + ".other";
         WriteText(other, MakeTestEntry(2).bytes);
         fs::remove(path);
         fs::create_hard_link(other, path);
         fs::remove(other);
       }},
      {"folder",
       [](const std::string& path) {
         fs::remove(path);
         fs::create_directory(path);
       }},
      {"full folder",
       [](const std::string& path) {
         fs::remove(path);
         fs::create_directory(path);
         WriteText(path + "/file", "x");
       }},
      {"pipe",
       [](const std::string& path) {
         fs::remove(path);
         ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
       }},
      {"symbolic link to a sound entry",
       [](const std::string& path) {
         fs::rename(path, path + ".real");
         fs::create_symlink(path + ".real", path);
       }},
      {"dangling link",
       [](const std::string& path) {
         fs::remove(path);
         fs::create_symlink("/nowhere", path);
       }},
      {"others may write", [](const std::string& path) { chmod(path.c_str(), 0666); }},
      {"sparse giant",
       [](const std::string& path) { fs::resize_file(path, std::uint64_t{3} << 30); }},
  };
}

TEST_F(StoreDirTest, WhatIsNoSoundEntryIsQuarantinedAndReplaced) {
  const Entry entry = MakeTestEntry(1);
  for (const Planted& planted : Plants()) {
    for (const bool publish_first : {false, true}) {
      const TempFolder folder;
      const auto dir = OpenDir(folder.Sub("s"));
      const std::string path = EntryPath(dir->root(), entry.action);
      ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
      planted.plant(path);
      if (!publish_first) {
        const StoreDir::Lookup lookup = dir->Find(entry.action);
        EXPECT_FALSE(lookup.found) << planted.name;
        EXPECT_EQ(lookup.miss, MissReason::kCorrupt) << planted.name;
        EXPECT_NE(lookup.detail, "") << planted.name;
        EXPECT_TRUE(lookup.quarantined) << planted.name;
        EXPECT_EQ(Look(*dir, entry), "absent ") << planted.name;
      }
      std::string why;
      EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNew)
          << planted.name << ": " << why;
      EXPECT_EQ(Look(*dir, entry), "hit") << planted.name;
      EXPECT_THAT(NamesIn(dir->root() + "/v1/quarantine"), SizeIs(1)) << planted.name;
      EXPECT_EQ(dir->GetTotals().quarantined, 1u);
      EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite) << planted.name;
    }
  }
}

TEST_F(StoreDirTest, ADeviceInTheNameOfAnEntryIsNotOpened) {
  const Entry entry = MakeTestEntry(1);
  FaultyFilesystem files;
  StoreDir::Options options;
  options.files = &files;
  const auto dir = StoreDir::Open(root_, options);
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  // Making a device takes privileges: the file is reported as one.
  files.stat_filter = [](Filesystem::Stat& stat) {
    if (stat.IsRegular()) stat.mode = (stat.mode & 07777) | S_IFCHR;
  };
  Fault opens;
  opens.only = FaultyFilesystem::Call::kOpen;
  files.Arm(opens);
  EXPECT_EQ(Look(*dir, entry), "corrupt not a regular file");
  EXPECT_EQ(files.steps(), 0);
  files.stat_filter = nullptr;
}

TEST_F(StoreDirTest, TwoEntriesSwappedAreBothRefused) {
  const Entry one = MakeTestEntry(1), two = MakeTestEntry(2);
  const auto dir = OpenDir(root_);
  ASSERT_EQ(dir->Publish(one.action, one.bytes), StoreDir::Published::kNew);
  ASSERT_EQ(dir->Publish(two.action, two.bytes), StoreDir::Published::kNew);
  WriteText(EntryPath(root_, one.action), two.bytes);
  WriteText(EntryPath(root_, two.action), one.bytes);
  EXPECT_THAT(Look(*dir, one), HasSubstr("another key"));
  EXPECT_THAT(Look(*dir, two), HasSubstr("another key"));
}

TEST_F(StoreDirTest, AnEntryThatReplacesADamagedOneMeanwhileIsNotQuarantined) {
  const Entry entry = MakeTestEntry(1);
  FaultyFilesystem files;
  StoreDir::Options options;
  options.files = &files;
  const auto dir = StoreDir::Open(root_, options);
  const std::string path = EntryPath(root_, entry.action);
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  const auto replace = [&] {
    fs::remove(path);
    WriteText(path + ".new", entry.bytes);
    chmod((path + ".new").c_str(), 0600);
    fs::rename(path + ".new", path);
  };
  // Before the look that guards the rename, and between that look and the rename.
  for (const auto call :
       {FaultyFilesystem::Call::kStatPath, FaultyFilesystem::Call::kRenameNoReplace}) {
    const std::string keep = path + ".keep";  // so that its inode number is not used again
    fs::rename(path, keep);
    WriteText(path, "damaged");
    chmod(path.c_str(), 0600);
    const std::string other_name = path + ".damaged";
    fs::create_hard_link(path, other_name);
    Fault fault;
    fault.kind = Fault::kHook;
    fault.only = call;
    fault.path_part = path.substr(path.size() - 40);
    fault.step = call == FaultyFilesystem::Call::kStatPath ? 2 : 1;
    fault.hook = replace;
    files.Arm(fault);
    const StoreDir::Lookup lookup = dir->Find(entry.action);
    files.Disarm();
    EXPECT_EQ(files.fired(), 1);
    EXPECT_FALSE(lookup.quarantined);
    EXPECT_EQ(Look(*dir, entry), "hit") << "the new one stays";
    fs::remove(keep);
    fs::remove(other_name);
  }
}

TEST_F(StoreDirTest, AnEntryThatVanishesOrGoesStaleIsAMissOrTriedAgain) {
  const Entry entry = MakeTestEntry(1);
  FaultyFilesystem files;
  StoreDir::Options options;
  options.files = &files;
  const auto dir = StoreDir::Open(root_, options);
  const std::string path = EntryPath(root_, entry.action);
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  using Call = FaultyFilesystem::Call;
  // A file server that has forgotten the handle: once or twice.
  for (const Call call : {Call::kStatPath, Call::kOpen, Call::kStatFd, Call::kRead}) {
    for (const int error : {ESTALE, EINTR}) {
      Fault fault;
      fault.kind = Fault::kError;
      fault.only = call;
      fault.error = error;
      if (call == Call::kStatPath || call == Call::kOpen) fault.path_part = ".twk";
      files.Arm(fault);
      EXPECT_EQ(Look(*dir, entry), "hit") << static_cast<int>(call);
      files.Disarm();
      EXPECT_EQ(files.fired(), 1);
      fault.lasting = true;
      files.Arm(fault);
      EXPECT_THAT(Look(*dir, entry), testing::StartsWith("absent cannot"));
      EXPECT_LE(files.fired(), 5) << "it gives up";
      files.Disarm();
    }
  }
  EXPECT_EQ(Look(*dir, entry), "hit");
  // Removed between the look and the opening.
  Fault fault;
  fault.kind = Fault::kHook;
  fault.only = Call::kOpen;
  fault.path_part = ".twk";
  fault.hook = [&] { fs::remove(path); };
  files.Arm(fault);
  EXPECT_EQ(Look(*dir, entry), "absent ");
  EXPECT_EQ(files.fired(), 1);
}

TEST_F(StoreDirTest, AFolderThatIsDeletedWhileOpenIsMadeAgain) {
  const auto dir = OpenDir(root_);
  const Entry entry = MakeTestEntry(1);
  for (const std::string& gone :
       {root_, root_ + "/v1", root_ + "/v1/tmp", root_ + "/v1/entries", root_ + "/v1/neg",
        root_ + "/v1/lock", root_ + "/v1/quarantine", folder_.Sub("deep")}) {
    (void)dir->Publish(entry.action, entry.bytes);
    dir->Count(1, 1);
    fs::remove_all(gone);
    (void)Look(*dir, entry);
    std::string why;
    EXPECT_NE(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNot)
        << gone << ": " << why;
    EXPECT_EQ(Look(*dir, entry), "hit") << gone;
    EXPECT_EQ(dir->PublishNegative(entry.action, {"log", time(nullptr), "a", "r"}),
              StoreDir::Published::kNew)
        << gone;
    EXPECT_TRUE(dir->FindNegative(entry.action)) << gone;
    StoreDir::KeyLock lock;
    EXPECT_EQ(dir->TryLock(entry.action, lock), StoreDir::LockResult::kHeld) << gone;
    dir->Count(1, 1);
    EXPECT_GE(dir->Counters()[1], 1u);
    EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite) << gone << ": " << dir->reason();
  }
}

// ---------------------------------------------------------------- whom to trust

TEST_F(StoreDirTest, ARootThatOthersMayWriteIsRefused) {
  const Entry entry = MakeTestEntry(1);
  (void)OpenDir(root_)->Publish(entry.action, entry.bytes);
  for (const mode_t mode : {0777, 0770, 0702, 01777}) {
    chmod(root_.c_str(), mode);
    const auto dir = OpenDir(root_);
    EXPECT_EQ(dir->state(), StoreDir::State::kRefused);
    EXPECT_THAT(dir->reason(), HasSubstr("others may write"));
    EXPECT_THAT(Look(*dir, entry), HasSubstr("others may write")) << "and says why";
    EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNot);
    EXPECT_FALSE(dir->Remove(entry.action));
    EXPECT_EQ(dir->GetTotals().entries, 0u);
    StoreDir::KeyLock lock;
    EXPECT_EQ(dir->TryLock(entry.action, lock), StoreDir::LockResult::kUnusable);
  }
  chmod(root_.c_str(), 0755);
  EXPECT_EQ(OpenDir(root_)->state(), StoreDir::State::kReadWrite);
}

TEST_F(StoreDirTest, AFolderOfAnotherUserIsRefusedUnlessItIsASite) {
  const Entry entry = MakeTestEntry(1);
  (void)OpenDir(root_)->Publish(entry.action, entry.bytes);
  FaultyFilesystem files;
  files.stat_filter = [](Filesystem::Stat& stat) { stat.uid = geteuid() + 1; };
  StoreDir::Options options;
  options.files = &files;
  auto dir = StoreDir::Open(root_, options);
  EXPECT_EQ(dir->state(), StoreDir::State::kRefused);
  EXPECT_EQ(dir->reason(), root_ + ": owner is uid " + std::to_string(geteuid() + 1) + ", not " +
                               std::to_string(geteuid()));
  options.access = StoreDir::Access::kReadOnly;
  options.trusted = StoreDir::Trusted::kAnybody;
  dir = StoreDir::Open(root_, options);
  EXPECT_EQ(dir->state(), StoreDir::State::kReadOnly);
  EXPECT_EQ(dir->reason(), "");
  EXPECT_EQ(Look(*dir, entry), "hit");
}

TEST_F(StoreDirTest, AnEntryOfAnotherUserIsNotBelieved) {
  const Entry entry = MakeTestEntry(1);
  FaultyFilesystem files;
  StoreDir::Options options;
  options.files = &files;
  const auto dir = StoreDir::Open(root_, options);
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  files.stat_filter = [](Filesystem::Stat& stat) {
    if (stat.IsRegular()) stat.uid = geteuid() + 1;
  };
  EXPECT_THAT(Look(*dir, entry), HasSubstr("owner is uid"));
}

TEST_F(StoreDirTest, SymbolicLinksAreNotFollowed) {
  const Entry entry = MakeTestEntry(1);
  (void)OpenDir(root_)->Publish(entry.action, entry.bytes);
  const std::string link = folder_.Sub("link");
  fs::create_symlink(root_, link);
  EXPECT_EQ(OpenDir(link)->state(), StoreDir::State::kRefused);
  EXPECT_EQ(OpenDir(link + "/")->state(), StoreDir::State::kRefused);
  EXPECT_THAT(OpenDir(link)->reason(), HasSubstr("symbolic link"));
  // A site's folder may be a link to the release that is in use.
  StoreDir::Options site;
  site.access = StoreDir::Access::kReadOnly;
  site.trusted = StoreDir::Trusted::kAnybody;
  EXPECT_EQ(Look(*StoreDir::Open(link, site), entry), "hit");

  const std::string shard = fs::path(EntryPath(root_, entry.action)).parent_path();
  for (const std::string& inner :
       {root_ + "/v1", root_ + "/v1/entries", root_ + "/v1/tmp", root_ + "/v1/neg",
        root_ + "/v1/lock", root_ + "/v1/quarantine", shard}) {
    const auto open_before = OpenDir(root_);
    fs::rename(inner, folder_.Sub("moved"));
    fs::create_symlink(folder_.Sub("moved"), inner);
    const auto dir = OpenDir(root_);
    EXPECT_EQ(dir->state(), StoreDir::State::kRefused) << inner;
    EXPECT_THAT(dir->reason(), HasSubstr(inner + ": is a symbolic link"));
    EXPECT_FALSE(dir->Find(entry.action).found);
    if (inner == shard) {
      EXPECT_FALSE(open_before->Find(entry.action).found) << "also when it is swapped later";
      EXPECT_EQ(open_before->state(), StoreDir::State::kRefused);
    }
    fs::remove(inner);
    fs::rename(folder_.Sub("moved"), inner);
    EXPECT_EQ(Look(*OpenDir(root_), entry), "hit");
  }
}

TEST_F(StoreDirTest, AParentThatAnybodyMayWriteIsRefusedUnlessSticky) {
  const std::string parent = folder_.Sub("open");
  fs::create_directory(parent);
  chmod(parent.c_str(), 0777);
  EXPECT_EQ(OpenDir(parent + "/s")->state(), StoreDir::State::kRefused);
  EXPECT_THAT(OpenDir(parent + "/s")->reason(), HasSubstr("may replace it"));
  chmod(parent.c_str(), 01777);
  EXPECT_EQ(OpenDir(parent + "/s")->state(), StoreDir::State::kReadWrite);
}

TEST_F(StoreDirTest, ARootThatIsNoFolderIsRefused) {
  WriteText(folder_.Sub("file"), "x");
  EXPECT_THAT(OpenDir(folder_.Sub("file"))->reason(), HasSubstr("is not a folder"));
  EXPECT_EQ(OpenDir("")->state(), StoreDir::State::kRefused);
  EXPECT_EQ(OpenDir(folder_.Sub("file") + "/below")->state(), StoreDir::State::kRefused);
}

TEST_F(StoreDirTest, ReadOnlyMakesNothing) {
  StoreDir::Options options;
  options.access = StoreDir::Access::kReadOnly;
  const auto absent = StoreDir::Open(root_, options);
  EXPECT_EQ(absent->state(), StoreDir::State::kReadOnly);
  EXPECT_THAT(absent->reason(), HasSubstr("does not exist"));
  EXPECT_FALSE(fs::exists(folder_.Sub("deep")));
  const Entry entry = MakeTestEntry(1), other = MakeTestEntry(2);
  EXPECT_EQ(Look(*absent, entry), "absent ");

  (void)OpenDir(root_)->Publish(entry.action, entry.bytes);
  (void)OpenDir(root_)->Publish(other.action, other.bytes);
  WriteText(EntryPath(root_, other.action), "damaged");
  SetStamp(EntryPath(root_, entry.action), 1000);
  const auto counters = ReadText(root_ + "/v1/counters");
  const auto dir = StoreDir::Open(root_, options);
  EXPECT_EQ(Look(*dir, entry), "hit");
  EXPECT_EQ(dir->Find(other.action).miss, MissReason::kCorrupt);
  EXPECT_EQ(dir->Find(other.action).miss, MissReason::kCorrupt) << "it stays where it is";
  dir->Count(0, 5);
  EXPECT_EQ(dir->Counters()[0], 5u);
  std::string why;
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNot);
  EXPECT_THAT(why, HasSubstr("reading only"));
  EXPECT_EQ(dir->PublishNegative(entry.action, {}), StoreDir::Published::kNot);
  EXPECT_EQ(dir->Sweep(false).removed_quarantined, 0u);
  EXPECT_EQ(StampOf(EntryPath(root_, entry.action)), 1000);
  EXPECT_EQ(ReadText(root_ + "/v1/counters"), counters);
  EXPECT_EQ(ReadText(EntryPath(root_, other.action)), "damaged");
}

TEST_F(StoreDirTest, AFolderOfANewerFormatIsRefusedAndADamagedFormatMended) {
  (void)OpenDir(root_);
  WriteText(root_ + "/v1/format", "tilewright artifacts 2\n");
  EXPECT_THAT(OpenDir(root_)->reason(), HasSubstr("format 2"));
  EXPECT_EQ(ReadText(root_ + "/v1/format"), "tilewright artifacts 2\n");
  WriteText(root_ + "/v1/format", "");
  EXPECT_EQ(OpenDir(root_)->state(), StoreDir::State::kReadWrite);
  EXPECT_EQ(ReadText(root_ + "/v1/format"), "tilewright artifacts 1\n");
}

// ---------------------------------------------------------------- listing

TEST_F(StoreDirTest, ForEachVisitsEntriesInTheOrderOfKeysAndNothingElse) {
  const auto dir = OpenDir(root_);
  std::vector<ArtifactKey> keys;
  std::uint64_t bytes = 0;
  for (int i = 0; i < 30; ++i) {
    const Entry entry = MakeTestEntry(i);
    (void)dir->Publish(entry.action, entry.bytes);
    keys.push_back(entry.action);
    bytes += entry.bytes.size();
  }
  std::sort(keys.begin(), keys.end());
  const std::string shard = fs::path(EntryPath(root_, keys[0])).parent_path();
  WriteText(shard + "/notes.txt", "x");
  WriteText(shard + "/" + std::string(62, 'G') + ".twk", "x");
  WriteText(shard + "/" + std::string(62, 'A') + ".twk", "x");
  WriteText(root_ + "/v1/entries/file", "x");
  std::vector<ArtifactKey> seen;
  for (const StoreDir::EntryFile& file : dir->Entries()) {
    seen.push_back(file.action);
    EXPECT_EQ(file.path, EntryPath(root_, file.action));
    EXPECT_GT(file.stat.size, 0u);
  }
  EXPECT_EQ(seen, keys);
  EXPECT_EQ(dir->GetTotals().entries, 30u);
  EXPECT_EQ(dir->GetTotals().bytes, bytes);
}

// ---------------------------------------------------------------- refusals

TEST_F(StoreDirTest, ARefusalIsRememberedForItsTimeOnly) {
  FaultyFilesystem files;
  StoreDir::Options options;
  options.files = &files;
  options.negative_ttl_s = 1000;
  const auto dir = StoreDir::Open(root_, options);
  const ArtifactKey key = MakeTestEntry(1).action;
  files.SetNow(5'000'000);
  EXPECT_FALSE(dir->FindNegative(key));
  const StoreDir::Negative negative{"ptxas error", 5'000'000, "action record", "request record"};
  ASSERT_EQ(dir->PublishNegative(key, negative), StoreDir::Published::kNew);
  const auto found = dir->FindNegative(key);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->log, negative.log);
  EXPECT_EQ(found->unix_s, negative.unix_s);
  EXPECT_EQ(found->action_record, negative.action_record);
  EXPECT_EQ(found->request_record, negative.request_record);
  int visited = 0;
  dir->ForEachNegative([&](const ArtifactKey& seen, const StoreDir::Negative& what) {
    ++visited;
    EXPECT_EQ(seen, key);
    EXPECT_EQ(what.log, negative.log);
  });
  EXPECT_EQ(visited, 1);
  EXPECT_EQ(dir->GetTotals().negative, 1u);
  files.SetNow(5'000'999);
  EXPECT_TRUE(dir->FindNegative(key));
  EXPECT_EQ(dir->Sweep(false).removed_negative, 0u);
  files.SetNow(5'001'000);
  EXPECT_FALSE(dir->FindNegative(key)) << "expired";
  files.SetNow(4'999'000);
  EXPECT_FALSE(dir->FindNegative(key)) << "from the future";
  files.SetNow(5'001'001);
  EXPECT_EQ(dir->Sweep(true).removed_negative, 1u);
  EXPECT_EQ(dir->Sweep(false).removed_negative, 1u);
  EXPECT_EQ(dir->GetTotals().negative, 0u);
}

TEST_F(StoreDirTest, ARefusalMayBeRememberedForEverOrNotAtAll) {
  using Limits = std::numeric_limits<std::int64_t>;
  const auto remembered = [&](std::int64_t ttl_s) {
    FaultyFilesystem files;
    files.SetNow(5'000'000);
    StoreDir::Options options;
    options.files = &files;
    options.negative_ttl_s = ttl_s;
    const auto dir = StoreDir::Open(root_, options);
    const ArtifactKey key = MakeTestEntry(1).action;
    EXPECT_EQ(dir->PublishNegative(key, {"log", 4'999'990, "a", "r"}), StoreDir::Published::kNew);
    EXPECT_EQ(dir->Sweep(true).removed_negative, ttl_s > 0 ? 0u : 1u) << ttl_s;
    return dir->FindNegative(key).has_value();
  };
  EXPECT_TRUE(remembered(Limits::max()));
  EXPECT_FALSE(remembered(0));
  EXPECT_FALSE(remembered(-1));
  EXPECT_FALSE(remembered(Limits::min()));
}

TEST_F(StoreDirTest, ALongLogIsCutAndANewerRefusalReplacesTheOlder) {
  const auto dir = OpenDir(root_);
  const ArtifactKey key = MakeTestEntry(1).action;
  const std::int64_t now = time(nullptr);
  ASSERT_EQ(dir->PublishNegative(key, {std::string(1 << 20, 'e'), now - 5, "a", "r"}),
            StoreDir::Published::kNew);
  EXPECT_EQ(dir->FindNegative(key)->log.size(), std::size_t{64} << 10);
  ASSERT_EQ(dir->PublishNegative(key, {"short", now, "a", "r"}), StoreDir::Published::kNew);
  EXPECT_EQ(dir->FindNegative(key)->log, "short");
  EXPECT_EQ(dir->PublishNegative(key, {"x", now, std::string(2 << 20, 'a'), "r"}),
            StoreDir::Published::kNot);
}

TEST_F(StoreDirTest, EveryFlippedBitAndEveryTruncationOfARefusalIsNoRefusal) {
  const auto dir = OpenDir(root_);
  const ArtifactKey key = MakeTestEntry(1).action;
  ASSERT_EQ(dir->PublishNegative(key, {"log", time(nullptr), "a", "r"}), StoreDir::Published::kNew);
  const std::string path = NegativePath(root_, key), bytes = ReadText(path);
  ASSERT_EQ(bytes.size(), 64u + 5 + 32);
  const auto read = [&](const std::string& damaged) {
    fs::remove(path);
    WriteText(path, damaged);
    chmod(path.c_str(), 0600);
    return dir->FindNegative(key).has_value();
  };
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(read(damaged)) << "bit " << bit;
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(read(bytes.substr(0, size)));
  EXPECT_FALSE(read(bytes + "x"));
  EXPECT_TRUE(read(bytes));
  // The refusal of one key in the name of another.
  const ArtifactKey other = MakeTestEntry(2).action;
  fs::create_directories(fs::path(NegativePath(root_, other)).parent_path());
  fs::rename(path, NegativePath(root_, other));
  EXPECT_FALSE(dir->FindNegative(other));
  EXPECT_FALSE(fs::exists(NegativePath(root_, other))) << "quarantined";
}

TEST_F(StoreDirTest, AFolderInTheNameOfARefusalIsMovedAway) {
  const auto dir = OpenDir(root_);
  const ArtifactKey key = MakeTestEntry(1).action;
  fs::create_directories(NegativePath(root_, key));
  EXPECT_EQ(dir->PublishNegative(key, {"log", time(nullptr), "a", "r"}), StoreDir::Published::kNew);
  EXPECT_TRUE(dir->FindNegative(key));
  EXPECT_THAT(NamesIn(root_ + "/v1/quarantine"), SizeIs(1));
}

// ---------------------------------------------------------------- counters

TEST_F(StoreDirTest, CountersAreSharedAndPersistent) {
  const auto one = OpenDir(root_), two = OpenDir(root_);
  one->Count(0, 3);
  two->Count(0, 4);
  two->Count(StoreDir::kCounters - 1, 9);
  two->Count(StoreDir::kCounters, 1);  // ignored
  EXPECT_EQ(one->Counters()[0], 7u);
  EXPECT_TRUE(EndedWell(InChild([&] { OpenDir(root_)->Count(0, 10); })));
  EXPECT_EQ(one->Counters()[0], 17u);
  EXPECT_EQ(OpenDir(root_)->Counters()[StoreDir::kCounters - 1], 9u);
}

TEST_F(StoreDirTest, DamagedCountersAreMadeAnewAlsoWhileTheyAreMapped) {
  const std::string path = root_ + "/v1/counters";
  const std::vector<std::pair<std::string, std::function<void()>>> damages = {
      {"emptied", [&] { WriteText(path, ""); }},
      {"short", [&] { fs::resize_file(path, 100); }},
      {"long", [&] { fs::resize_file(path, 8192); }},
      {"text", [&] { WriteText(path, std::string(4096, 'x')); }},
      {"removed", [&] { fs::remove(path); }},
      {"a folder",
       [&] {
         fs::remove(path);
         fs::create_directory(path);
       }},
      {"a link",
       [&] {
         fs::remove(path);
         fs::create_symlink("/dev/null", path);
       }},
      {"a pipe",
       [&] {
         fs::remove(path);
         mkfifo(path.c_str(), 0600);
       }},
  };
  for (const auto& [name, damage] : damages) {
    auto dir = OpenDir(root_);
    dir->Count(2, 1);
    damage();
    dir->Count(2, 1);  // in the mapping of before: neither fatal nor an error
    (void)dir->Counters();
    const auto next = OpenDir(root_);
    next->Count(2, 1);
    EXPECT_GE(next->Counters()[2], 1u) << name;
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path))) << name;
    EXPECT_EQ(fs::file_size(path), 4096u) << name;
    EXPECT_EQ(next->state(), StoreDir::State::kReadWrite) << name;
  }
}

TEST_F(StoreDirTest, WhereNothingCanBeMappedCountersAreInMemory) {
  FaultyFilesystem files;
  Fault fault;
  fault.kind = Fault::kError;
  fault.only = FaultyFilesystem::Call::kMap;
  fault.error = ENODEV;
  fault.lasting = true;
  files.Arm(fault);
  StoreDir::Options options;
  options.files = &files;
  const auto dir = StoreDir::Open(root_, options);
  EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite);
  dir->Count(0, 3);
  EXPECT_EQ(dir->Counters()[0], 3u);
  EXPECT_EQ(OpenDir(root_)->Counters()[0], 0u);
}

// ---------------------------------------------------------------- leaks

TEST_F(StoreDirTest, TenThousandOperationsLeaveNoDescriptorAndNoTemporaryFile) {
  const TempFolder folder(TempFolder::Place::kMemory);
  StoreDir::Options options;
  options.max_entries = 40;
  const auto dir = StoreDir::Open(folder.Sub("s"), options);
  std::vector<Entry> entries;
  for (int i = 0; i < 50; ++i) entries.push_back(MakeTestEntry(i));
  const auto work = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const Entry& entry = entries[static_cast<std::size_t>(i) % entries.size()];
      switch (i % 10) {
        case 0:
          (void)dir->Publish(entry.action, entry.bytes);
          break;
        case 1:
          (void)dir->Remove(entry.action);
          break;
        case 2:
          WriteText(EntryPath(dir->root(), entry.action), "damaged");
          break;
        case 3:
          (void)dir->PublishNegative(entry.action, {"log", time(nullptr), "a", "r"});
          break;
        case 4: {
          StoreDir::KeyLock lock;
          (void)dir->TryLock(entry.action, lock);
          break;
        }
        case 5:
          (void)dir->FindNegative(entry.action);
          dir->Count(1, 1);
          break;
        case 6:
          if (i % 100 == 6) (void)dir->Trim(true, false);
          break;
        case 7:
          (void)StoreDir::Open(folder.Sub("s"), options);
          break;
        default:
          (void)dir->Find(entry.action);
      }
    }
  };
  work(1000);
  (void)dir->Sweep(false);
  const int descriptors = OpenDescriptors();
  const auto mappings = ReadText("/proc/self/maps");
  work(10000);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_THAT(NamesIn(folder.Sub("s/v1/tmp")), IsEmpty());
  EXPECT_LE(NamesIn(folder.Sub("s/v1/lock")).size(), 16u);
  (void)dir->Sweep(false);
  EXPECT_LE(NamesIn(folder.Sub("s/v1/quarantine")).size(), 64u);
  const auto count = [](const std::string& maps) {
    std::size_t n = 0;
    for (std::size_t at = maps.find("counters"); at != std::string::npos;
         at = maps.find("counters", at + 1)) {
      ++n;
    }
    return n;
  };
  EXPECT_EQ(count(ReadText("/proc/self/maps")), count(mappings));
}

}  // namespace
}  // namespace tilewright::test
