#include "artifact/dir/store_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/faulty_filesystem.h"
#include "dir_fixture.h"

namespace tilewright::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
namespace fs = std::filesystem;

TEST_F(StoreDirTest, WhatIsPublishedIsFoundByThisAndTheNextProcess) {
  const Entry entry = MakeTestEntry(1);
  const auto dir = Open();
  ASSERT_EQ(dir->state(), StoreDir::State::kReadWrite) << dir->reason();
  EXPECT_EQ(dir->reason(), "");
  EXPECT_EQ(Look(*dir, entry), "absent ");
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  EXPECT_EQ(Look(*dir, entry), "hit");
  EXPECT_TRUE(EndedWell(InChild([&] { EXPECT_EQ(Look(*Open(), entry), "hit"); })));
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kLost);
  EXPECT_THAT(NamesIn(root_ + "/v1/tmp"), IsEmpty());
}

TEST_F(StoreDirTest, ALostPublicationKeepsTheFirstBytes) {
  const Entry first = MakeTestEntry(1, 300), second = MakeTestEntry(1, 400);
  ASSERT_EQ(first.action, second.action);
  const auto dir = Open();
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
  auto dir = Open();
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
  const auto dir = Open();
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
  const auto dir = Open(root_ + "//");
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
      {"others can write it", [](const std::string& path) { chmod(path.c_str(), 0666); }},
      {"sparse giant",
       [](const std::string& path) { fs::resize_file(path, std::uint64_t{3} << 30); }},
  };
}

TEST_F(StoreDirTest, WhatIsNoSoundEntryIsQuarantinedAndReplaced) {
  const Entry entry = MakeTestEntry(1);
  for (const Planted& planted : Plants()) {
    for (const bool publish_first : {false, true}) {
      const TempFolder folder;
      const auto dir = Open(folder.Sub("s"));
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
  const auto dir = OpenFaulty();
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  // Making a device takes privileges: the file is reported as one.
  files_.stat_filter = [](Filesystem::Stat& stat) {
    if (stat.IsRegular()) stat.mode = (stat.mode & 07777) | S_IFCHR;
  };
  Fault opens;
  opens.only = FaultyFilesystem::Call::kOpen;
  files_.Arm(opens);
  EXPECT_EQ(Look(*dir, entry), "corrupt not a regular file");
  EXPECT_EQ(files_.steps(), 0);
  files_.stat_filter = nullptr;
}

TEST_F(StoreDirTest, TwoEntriesSwappedAreBothRefused) {
  const Entry one = MakeTestEntry(1), two = MakeTestEntry(2);
  const auto dir = Open();
  ASSERT_EQ(dir->Publish(one.action, one.bytes), StoreDir::Published::kNew);
  ASSERT_EQ(dir->Publish(two.action, two.bytes), StoreDir::Published::kNew);
  WriteText(EntryPath(root_, one.action), two.bytes);
  WriteText(EntryPath(root_, two.action), one.bytes);
  EXPECT_THAT(Look(*dir, one), HasSubstr("another key"));
  EXPECT_THAT(Look(*dir, two), HasSubstr("another key"));
}

TEST_F(StoreDirTest, AnEntryThatReplacesADamagedOneMeanwhileIsNotQuarantined) {
  const Entry entry = MakeTestEntry(1);
  const auto dir = OpenFaulty();
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
    files_.Arm(fault);
    const StoreDir::Lookup lookup = dir->Find(entry.action);
    files_.Disarm();
    EXPECT_EQ(files_.fired(), 1);
    EXPECT_FALSE(lookup.quarantined);
    EXPECT_EQ(Look(*dir, entry), "hit") << "the new one stays";
    fs::remove(keep);
    fs::remove(other_name);
  }
}

TEST_F(StoreDirTest, AnEntryIsTrustedByTheFileThatIsOpenNotByTheOneThatHadItsNameBefore) {
  const Entry entry = MakeTestEntry(1);
  const auto dir = OpenFaulty();
  const std::string path = EntryPath(root_, entry.action);
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  Fault fault;
  fault.kind = Fault::kHook;
  fault.only = FaultyFilesystem::Call::kOpen;
  fault.path_part = ".twk";
  fault.hook = [&] { chmod(path.c_str(), 0666); };
  files_.Arm(fault);
  const StoreDir::Lookup lookup = dir->Find(entry.action);
  files_.Disarm();
  EXPECT_EQ(files_.fired(), 1);
  EXPECT_FALSE(lookup.found);
}

TEST_F(StoreDirTest, AnEntryThatVanishesOrGoesStaleIsAMissOrTriedAgain) {
  const Entry entry = MakeTestEntry(1);
  const auto dir = OpenFaulty();
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
      files_.Arm(fault);
      EXPECT_EQ(Look(*dir, entry), "hit") << static_cast<int>(call);
      files_.Disarm();
      EXPECT_EQ(files_.fired(), 1);
      fault.lasting = true;
      files_.Arm(fault);
      EXPECT_THAT(Look(*dir, entry), testing::StartsWith("absent cannot"));
      EXPECT_LE(files_.fired(), 5) << "it gives up";
      files_.Disarm();
    }
  }
  EXPECT_EQ(Look(*dir, entry), "hit");
  // Removed between the look and the opening.
  Fault fault;
  fault.kind = Fault::kHook;
  fault.only = Call::kOpen;
  fault.path_part = ".twk";
  fault.hook = [&] { fs::remove(path); };
  files_.Arm(fault);
  EXPECT_EQ(Look(*dir, entry), "absent ");
  EXPECT_EQ(files_.fired(), 1);
}

TEST_F(StoreDirTest, AFolderThatIsDeletedWhileOpenIsMadeAgain) {
  const auto dir = Open();
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

// ---------------------------------------------------------------- listing

TEST_F(StoreDirTest, ForEachVisitsEntriesInTheOrderOfKeysAndNothingElse) {
  const auto dir = Open();
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
