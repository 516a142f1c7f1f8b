// What in a folder is trusted, and what is left alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "dir_fixture.h"

namespace tilewright::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST_F(StoreDirTest, ARootThatOthersMayWriteIsRefused) {
  const Entry entry = MakeTestEntry(1);
  (void)Open()->Publish(entry.action, entry.bytes);
  for (const mode_t mode : {0777, 0770, 0702, 01777}) {
    chmod(root_.c_str(), mode);
    const auto dir = Open();
    EXPECT_EQ(dir->state(), StoreDir::State::kRefused);
    EXPECT_THAT(dir->reason(), HasSubstr("others can write it"));
    EXPECT_THAT(Look(*dir, entry), HasSubstr("others can write it")) << "and says why";
    EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNot);
    EXPECT_FALSE(dir->Remove(entry.action));
    EXPECT_EQ(dir->GetTotals().entries, 0u);
    StoreDir::KeyLock lock;
    EXPECT_EQ(dir->TryLock(entry.action, lock), StoreDir::LockResult::kUnusable);
  }
  chmod(root_.c_str(), 0755);
  EXPECT_EQ(Open()->state(), StoreDir::State::kReadWrite);
}

TEST_F(StoreDirTest, AFolderOfAnotherUserIsRefusedUnlessItIsASite) {
  const Entry entry = MakeTestEntry(1);
  (void)Open()->Publish(entry.action, entry.bytes);
  files_.stat_filter = [](Filesystem::Stat& stat) { stat.uid = geteuid() + 1; };
  StoreDir::Options options;
  auto dir = OpenFaulty(options);
  EXPECT_EQ(dir->state(), StoreDir::State::kRefused);
  EXPECT_EQ(dir->reason(), root_ + ": owner is uid " + std::to_string(geteuid() + 1) + ", not " +
                               std::to_string(geteuid()));
  options.access = StoreDir::Access::kReadOnly;
  options.trusted = StoreDir::Trusted::kOwner;
  dir = OpenFaulty(options);
  EXPECT_EQ(dir->state(), StoreDir::State::kReadOnly);
  EXPECT_EQ(dir->reason(), "");
  EXPECT_EQ(Look(*dir, entry), "hit");
}

TEST_F(StoreDirTest, AnEntryOfAnotherUserIsNotBelieved) {
  const Entry entry = MakeTestEntry(1);
  const auto dir = OpenFaulty();
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  files_.stat_filter = [](Filesystem::Stat& stat) {
    if (stat.IsRegular()) stat.uid = geteuid() + 1;
  };
  EXPECT_THAT(Look(*dir, entry), HasSubstr("owner is uid"));
}

TEST_F(StoreDirTest, SymbolicLinksAreNotFollowed) {
  const Entry entry = MakeTestEntry(1);
  (void)Open()->Publish(entry.action, entry.bytes);
  const std::string link = folder_.Sub("link");
  fs::create_symlink(root_, link);
  EXPECT_EQ(Open(link)->state(), StoreDir::State::kRefused);
  EXPECT_EQ(Open(link + "/")->state(), StoreDir::State::kRefused);
  EXPECT_THAT(Open(link)->reason(), HasSubstr("symbolic link"));
  // A site's folder may be a link to the release that is in use.
  StoreDir::Options site;
  site.access = StoreDir::Access::kReadOnly;
  site.trusted = StoreDir::Trusted::kOwner;
  EXPECT_EQ(Look(*StoreDir::Open(link, site), entry), "hit");

  const std::string shard = fs::path(EntryPath(root_, entry.action)).parent_path();
  for (const std::string& inner :
       {root_ + "/v1", root_ + "/v1/entries", root_ + "/v1/tmp", root_ + "/v1/neg",
        root_ + "/v1/lock", root_ + "/v1/quarantine", shard}) {
    const auto open_before = Open();
    fs::rename(inner, folder_.Sub("moved"));
    fs::create_symlink(folder_.Sub("moved"), inner);
    const auto dir = Open();
    EXPECT_EQ(dir->state(), StoreDir::State::kRefused) << inner;
    EXPECT_THAT(dir->reason(), HasSubstr(inner + ": is a symbolic link"));
    EXPECT_FALSE(dir->Find(entry.action).found);
    if (inner == shard) {
      EXPECT_FALSE(open_before->Find(entry.action).found) << "also when it is swapped later";
      EXPECT_EQ(open_before->state(), StoreDir::State::kRefused);
    }
    fs::remove(inner);
    fs::rename(folder_.Sub("moved"), inner);
    EXPECT_EQ(Look(*Open(), entry), "hit");
  }
}

TEST_F(StoreDirTest, AParentThatAnybodyMayWriteIsRefusedUnlessSticky) {
  const std::string parent = folder_.Sub("open");
  fs::create_directory(parent);
  chmod(parent.c_str(), 0777);
  EXPECT_EQ(Open(parent + "/s")->state(), StoreDir::State::kRefused);
  EXPECT_THAT(Open(parent + "/s")->reason(), HasSubstr("can replace it"));
  chmod(parent.c_str(), 01777);
  EXPECT_EQ(Open(parent + "/s")->state(), StoreDir::State::kReadWrite);
}

TEST_F(StoreDirTest, ARootThatIsNoFolderIsRefused) {
  WriteText(folder_.Sub("file"), "x");
  EXPECT_THAT(Open(folder_.Sub("file"))->reason(), HasSubstr("is not a folder"));
  EXPECT_EQ(Open("")->state(), StoreDir::State::kRefused);
  EXPECT_EQ(Open(folder_.Sub("file") + "/below")->state(), StoreDir::State::kRefused);
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

  (void)Open()->Publish(entry.action, entry.bytes);
  (void)Open()->Publish(other.action, other.bytes);
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
  EXPECT_THAT(why, HasSubstr("read-only"));
  EXPECT_EQ(dir->PublishNegative(entry.action, {}), StoreDir::Published::kNot);
  EXPECT_EQ(dir->Sweep(false).removed_quarantined, 0u);
  EXPECT_EQ(StampOf(EntryPath(root_, entry.action)), 1000);
  EXPECT_EQ(ReadText(root_ + "/v1/counters"), counters);
  EXPECT_EQ(ReadText(EntryPath(root_, other.action)), "damaged");
}

TEST_F(StoreDirTest, AFolderOfANewerFormatIsRefusedAndADamagedFormatMended) {
  (void)Open();
  WriteText(root_ + "/v1/format", "tilewright artifacts 2\n");
  EXPECT_THAT(Open()->reason(), HasSubstr("format 2"));
  EXPECT_EQ(ReadText(root_ + "/v1/format"), "tilewright artifacts 2\n");
  WriteText(root_ + "/v1/format", "");
  EXPECT_EQ(Open()->state(), StoreDir::State::kReadWrite);
  EXPECT_EQ(ReadText(root_ + "/v1/format"), "tilewright artifacts 1\n");
}

}  // namespace
}  // namespace tilewright::test
