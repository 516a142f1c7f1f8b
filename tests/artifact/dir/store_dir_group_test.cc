// A folder that several users of a group share: read by name, added to, never repaired.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "dir_fixture.h"

namespace tilewright::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

constexpr gid_t kTeam = 54321;
struct User {
  uid_t uid = 0;
  mode_t umask = 022;
  bool member = true;
};
constexpr User kAnna{50001, 077}, kBert{50002, 022}, kStranger{50003, 022, false};

struct stat StatOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info;
}

std::unique_ptr<StoreDir> OpenForGroup(const std::string& root,
                                       StoreDir::Access access = StoreDir::Access::kReadWrite) {
  StoreDir::Options options;
  options.access = access;
  options.trusted = StoreDir::Trusted::kGroup;
  options.durable = true;
  return StoreDir::Open(root, options);
}

/// Two entries whose files lie in one shard.
std::pair<Entry, Entry> OfOneShard() {
  const Entry one = MakeTestEntry(0);
  for (int i = 1;; ++i) {
    Entry two = MakeTestEntry(i);
    if (two.action.bytes[0] == one.action.bytes[0]) return {one, std::move(two)};
  }
}

class StoreDirGroup : public testing::Test {
 protected:
  StoreDirGroup() {
    chmod(folder_.path().c_str(), 0755);
    fs::create_directory(root_);
    if (geteuid() == 0) {
      EXPECT_EQ(chown(root_.c_str(), 0, kTeam), 0);
    }
    chmod(root_.c_str(), 02770);
  }
  /// Runs `work` in a process of that user.
  static bool As(const User& user, const std::function<void()>& work) {
    return EndedWell(InChild([&] {
      const gid_t groups[] = {kTeam};
      ASSERT_EQ(setgroups(user.member ? 1 : 0, groups), 0);
      ASSERT_EQ(setgid(user.uid), 0);
      ASSERT_EQ(setuid(user.uid), 0);
      umask(user.umask);
      work();
    }));
  }

  const TempFolder folder_;
  const std::string root_ = folder_.Sub("shared");
};

/// Those that need several users.
class StoreDirUsers : public StoreDirGroup {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
  }
};

TEST_F(StoreDirUsers, MembersAddToOneFolderWhateverTheirUmask) {
  const auto [one, two] = OfOneShard();
  EXPECT_TRUE(As(kAnna, [&, &entry = one] {
    const auto dir = OpenForGroup(root_);
    ASSERT_EQ(dir->state(), StoreDir::State::kReadWrite) << dir->reason();
    std::string why;
    EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNew) << why;
    StoreDir::KeyLock lock;
    EXPECT_EQ(dir->TryLock(entry.action, lock), StoreDir::LockResult::kHeld);
  }));
  EXPECT_TRUE(As(kBert, [&, &theirs = one, &own = two] {
    const auto dir = OpenForGroup(root_);
    ASSERT_EQ(dir->state(), StoreDir::State::kReadWrite) << dir->reason();
    EXPECT_EQ(Look(*dir, theirs), "hit");
    EXPECT_EQ(dir->Publish(theirs.action, theirs.bytes), StoreDir::Published::kLost);
    std::string why;
    EXPECT_EQ(dir->Publish(own.action, own.bytes, &why), StoreDir::Published::kNew) << why;
    StoreDir::KeyLock lock;
    EXPECT_EQ(dir->TryLock(theirs.action, lock), StoreDir::LockResult::kHeld) << "Anna's file";
  }));
  EXPECT_TRUE(
      As(kAnna, [&, &entry = two] { EXPECT_EQ(Look(*OpenForGroup(root_), entry), "hit"); }));
  for (const auto& file : fs::recursive_directory_iterator(root_)) {
    EXPECT_EQ(ModeOf(file.path()), file.is_directory() ? 02770u : 0660u) << file.path();
    EXPECT_EQ(StatOf(file.path()).st_gid, kTeam) << file.path();
  }
  EXPECT_THAT(NamesIn(root_ + "/v1/tmp"), IsEmpty());
}

TEST_F(StoreDirUsers, AFolderOfAnotherUserIsBelievedOnlyWhenAsked) {
  const Entry entry = MakeTestEntry(1);
  ASSERT_TRUE(As(kAnna, [&] {
    EXPECT_EQ(OpenForGroup(root_)->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  }));
  EXPECT_TRUE(As(kBert, [&] {
    const auto unasked = StoreDir::Open(root_, {});
    EXPECT_EQ(unasked->state(), StoreDir::State::kRefused);
    EXPECT_THAT(unasked->reason(), HasSubstr("owner is uid 0, not 50002"));
    EXPECT_EQ(Look(*OpenForGroup(root_, StoreDir::Access::kReadOnly), entry), "hit");
  }));
  EXPECT_TRUE(As(kStranger, [&] {
    const auto dir = OpenForGroup(root_);
    EXPECT_EQ(dir->state(), StoreDir::State::kReadOnly);
    EXPECT_THAT(dir->reason(), HasSubstr("Permission denied"));
    EXPECT_THAT(Look(*dir, entry), HasSubstr("absent "));
    EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNot);
  }));
}

TEST_F(StoreDirUsers, AMemberWhoMayOnlyReadIsToldAtTheFirstPublicationAndGoesOnReading) {
  const Entry entry = MakeTestEntry(1), other = MakeTestEntry(2);
  ASSERT_TRUE(As(kAnna, [&] {
    EXPECT_EQ(OpenForGroup(root_)->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  }));
  chmod((root_ + "/v1/tmp").c_str(), 02750);
  EXPECT_TRUE(As(kBert, [&] {
    const auto dir = OpenForGroup(root_);
    EXPECT_EQ(Look(*dir, entry), "hit");
    std::string why;
    EXPECT_EQ(dir->Publish(other.action, other.bytes, &why), StoreDir::Published::kNot);
    EXPECT_THAT(why, HasSubstr("Permission denied"));
    EXPECT_EQ(dir->state(), StoreDir::State::kReadOnly);
    EXPECT_EQ(Look(*dir, entry), "hit");
  }));
}

TEST_F(StoreDirUsers, OneFileThatIsClosedToAMemberCostsOnlyItself) {
  const auto [one, two] = OfOneShard();
  const Entry three = MakeTestEntry(1);
  ASSERT_NE(three.action.bytes[0], one.action.bytes[0]);
  ASSERT_TRUE(As(kAnna, [&, &entry = one] {
    EXPECT_EQ(OpenForGroup(root_)->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  }));
  chmod(EntryPath(root_, one.action).c_str(), 0600);
  chmod(fs::path(EntryPath(root_, one.action)).parent_path().c_str(), 02750);
  EXPECT_TRUE(As(kBert, [&, &closed = one, &below = two] {
    const auto dir = OpenForGroup(root_);
    EXPECT_THAT(Look(*dir, closed), HasSubstr("Permission denied"));
    EXPECT_EQ(dir->Publish(closed.action, closed.bytes), StoreDir::Published::kNot);
    EXPECT_EQ(dir->Publish(below.action, below.bytes), StoreDir::Published::kNot);
    EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite);
    EXPECT_EQ(dir->Publish(three.action, three.bytes), StoreDir::Published::kNew);
  }));
}

TEST_F(StoreDirGroup, WhatEverybodyMayWriteIsNotBelievedEvenWhenAsked) {
  const Entry entry = MakeTestEntry(1);
  ASSERT_EQ(OpenForGroup(root_)->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  const std::string shard = fs::path(EntryPath(root_, entry.action)).parent_path();
  for (const std::string& folder : {root_, root_ + "/v1", root_ + "/v1/entries", shard}) {
    const mode_t mode = ModeOf(folder);
    chmod(folder.c_str(), 02777);
    const auto dir = OpenForGroup(root_);
    EXPECT_EQ(dir->state(), StoreDir::State::kRefused) << folder;
    EXPECT_THAT(dir->reason(), HasSubstr(folder + ": mode is 2777: everybody can write it"));
    chmod(folder.c_str(), mode);
  }
  chmod(EntryPath(root_, entry.action).c_str(), 0666);
  EXPECT_THAT(Look(*OpenForGroup(root_), entry), HasSubstr("corrupt mode is 0666: everybody"));
}

TEST_F(StoreDirGroup, NothingInItIsMovedRemovedOrMapped) {
  const Entry entry = MakeTestEntry(1), other = MakeTestEntry(2);
  const auto dir = OpenForGroup(root_);
  ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  ASSERT_EQ(dir->Publish(other.action, other.bytes), StoreDir::Published::kNew);
  const std::string path = EntryPath(root_, entry.action), old = root_ + "/v1/tmp/old";
  WriteText(path, "damaged");
  WriteText(old, "x");
  SetStamp(old, 1000);
  EXPECT_THAT(Look(*dir, entry), HasSubstr("corrupt "));
  std::string why;
  EXPECT_EQ(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNot);
  EXPECT_THAT(why, HasSubstr(path));
  EXPECT_EQ(dir->Remove(other.action).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(dir->PublishNegative(entry.action, {"log", time(nullptr), "a", "r"}),
            StoreDir::Published::kNot);
  EXPECT_EQ(dir->Sweep(false).removed_temporaries, 0u);
  EXPECT_EQ(dir->Trim(true, false).removed_entries, 0u);
  dir->Count(0, 1);
  EXPECT_EQ(dir->Counters()[0], 1u) << "in memory";
  EXPECT_EQ(ReadText(path), "damaged");
  EXPECT_TRUE(fs::exists(old));
  EXPECT_THAT(NamesIn(root_ + "/v1/quarantine"), IsEmpty());
  EXPECT_FALSE(fs::exists(root_ + "/v1/counters"));
  EXPECT_EQ(Look(*dir, other), "hit");
  EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite);
}

TEST_F(StoreDirGroup, ItMustBeThereAndMayBeReachedThroughALink) {
  const std::string absent = folder_.Sub("absent"), link = folder_.Sub("link");
  const auto none = OpenForGroup(absent);
  EXPECT_EQ(none->state(), StoreDir::State::kReadOnly);
  EXPECT_EQ(none->reason(), absent + ": does not exist");
  EXPECT_FALSE(fs::exists(absent)) << "who may write it, its maker says";

  const Entry entry = MakeTestEntry(1);
  fs::create_symlink(root_, link);
  ASSERT_EQ(OpenForGroup(link)->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  EXPECT_EQ(Look(*OpenForGroup(root_), entry), "hit");
  // Not inside, where a member could put it.
  fs::rename(root_ + "/v1", folder_.Sub("v1"));
  fs::create_symlink(folder_.Sub("v1"), root_ + "/v1");
  EXPECT_THAT(OpenForGroup(root_)->reason(), HasSubstr("v1: is a symbolic link"));
}

}  // namespace
}  // namespace tilewright::test
