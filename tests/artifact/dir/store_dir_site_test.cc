// A site's folder: only its owner is trusted, and nobody else, wherever they can write.
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

constexpr uid_t kOwner = 50001, kOther = 50002;

/// FOLDER/a/b/site with an entry. Ownership can be given away by root only.
class StoreDirSite : public testing::Test {
 protected:
  StoreDirSite() {
    chmod(folder_.path().c_str(), 0755);
    fs::create_directories(above_);
    chmod((folder_.Sub("a")).c_str(), 0755);
    chmod(above_.c_str(), 0755);
    EXPECT_EQ(StoreDir::Open(site_, {})->Publish(entry_.action, entry_.bytes),
              StoreDir::Published::kNew);
  }
  std::unique_ptr<StoreDir> Open(const std::string& root, bool by_group = false) const {
    StoreDir::Options options;
    options.access = StoreDir::Access::kReadOnly;
    options.trusted = StoreDir::Trusted::kOwner;
    options.by_group = by_group;
    return StoreDir::Open(root, options);
  }
  void ExpectServes(const std::string& root, bool by_group = false) const {
    const auto dir = Open(root, by_group);
    EXPECT_EQ(dir->state(), StoreDir::State::kReadOnly);
    EXPECT_EQ(dir->reason(), "");
    EXPECT_EQ(Look(*dir, entry_), "hit");
  }
  void ExpectRefused(const std::string& root, const std::string& why, bool by_group = false) const {
    const auto dir = Open(root, by_group);
    EXPECT_EQ(dir->state(), StoreDir::State::kRefused) << why;
    EXPECT_THAT(dir->reason(), HasSubstr(why));
    EXPECT_FALSE(dir->Find(entry_.action).found);
    EXPECT_TRUE(dir->Entries().empty());
  }
  static bool IsRoot() { return geteuid() == 0; }
  static void Give(const std::string& path, uid_t to) {
    ASSERT_EQ(lchown(path.c_str(), to, static_cast<gid_t>(-1)), 0) << path;
  }
  void GiveSite(uid_t to) const {
    Give(site_, to);
    for (const auto& item : fs::recursive_directory_iterator(site_)) Give(item.path(), to);
  }

  const TempFolder folder_;
  const std::string above_ = folder_.Sub("a/b");
  const std::string site_ = above_ + "/site";
  const Entry entry_ = MakeTestEntry(1);
};

TEST_F(StoreDirSite, WhatOthersMayWriteIsRefusedAtEveryLevel) {
  ExpectServes(site_);
  const std::string shard = fs::path(EntryPath(site_, entry_.action)).parent_path();
  for (const std::string& place : {site_, site_ + "/v1", site_ + "/v1/entries"}) {
    const mode_t mode = ModeOf(place);
    chmod(place.c_str(), 0777);
    ExpectRefused(site_, place + ": mode is 0777: everybody can write it");
    ExpectRefused(site_, place + ": mode is 0777: everybody can write it", true);
    chmod(place.c_str(), 0775);
    ExpectRefused(site_,
                  place + ": mode is 0775: its group can write it (accepted with site_by_group)");
    ExpectServes(site_, true);
    chmod(place.c_str(), mode);
  }
  chmod(shard.c_str(), 0777);
  EXPECT_THAT(Look(*Open(site_), entry_), HasSubstr("mode is 0777: everybody can write it"));
  chmod(shard.c_str(), 0700);
  const std::string file = EntryPath(site_, entry_.action);
  chmod(file.c_str(), 0666);
  EXPECT_EQ(Open(site_)->Find(entry_.action).miss, MissReason::kCorrupt);
  EXPECT_THAT(Look(*Open(site_), entry_), HasSubstr("mode is 0666: everybody can write it"));
  chmod(file.c_str(), 0660);
  EXPECT_THAT(Look(*Open(site_), entry_), HasSubstr("mode is 0660: its group can write it"));
  EXPECT_EQ(Look(*Open(site_, true), entry_), "hit");
  EXPECT_TRUE(fs::exists(file)) << "nothing of a site is moved";
}

TEST_F(StoreDirSite, WhoMayWriteAFolderAboveCouldReplaceIt) {
  for (const std::string& place : {above_, folder_.Sub("a")}) {
    chmod(place.c_str(), 0777);
    ExpectRefused(site_, "its folder " + place + " has mode 0777: others can replace it");
    ExpectRefused(site_, "its folder " + place + " has mode 0777: others can replace it", true);
    chmod(place.c_str(), 0775);
    ExpectRefused(site_, "its folder " + place +
                             " has mode 0775: its group can replace it (accepted with "
                             "site_by_group)");
    ExpectServes(site_, true);
    chmod(place.c_str(), 01777);
    ExpectServes(site_);
    chmod(place.c_str(), 0755);
  }
}

TEST_F(StoreDirSite, ItMayBelongToAnybodyButNotBeInTheHandsOfAThird) {
  if (!IsRoot()) GTEST_SKIP() << "only root can give a folder away";
  GiveSite(kOwner);
  ExpectServes(site_);
  Give(above_, kOwner);
  ExpectServes(site_);
  Give(above_, kOther);
  ExpectRefused(site_, "its folder " + above_ + " belongs to uid 50002, who can replace it");
  Give(above_, 0);
  Give(site_ + "/v1", kOther);
  ExpectRefused(site_, site_ + "/v1: owner is uid 50002, not that of the folder, 50001");
  Give(site_ + "/v1", 0);
  ExpectServes(site_);
  Give(EntryPath(site_, entry_.action), kOther);
  EXPECT_THAT(Look(*Open(site_), entry_), HasSubstr("owner is uid 50002"));
}

TEST_F(StoreDirSite, WhereAnybodyMayTakeANameItMustBeOurs) {
  if (!IsRoot()) GTEST_SKIP() << "only root can give a folder away";
  chmod(above_.c_str(), 01777);
  ExpectServes(site_);
  GiveSite(kOwner);
  ExpectRefused(site_, "belongs to uid 50001 in " + above_ + ", where anybody can create it");
}

TEST_F(StoreDirSite, ALinkToItMustNotBeReplaceableEither) {
  const std::string links = folder_.Sub("links"), link = links + "/current";
  fs::create_directory(links);
  chmod(links.c_str(), 0755);
  fs::create_symlink(site_, link);
  ExpectServes(link);
  chmod(links.c_str(), 0777);
  ExpectRefused(link, "its folder " + links + " has mode 0777: others can replace it");
  chmod(links.c_str(), 0755);
  // Where it leads counts as well, and a link on the way.
  chmod(above_.c_str(), 0777);
  ExpectRefused(link, "has mode 0777: others can replace it");
  chmod(above_.c_str(), 0755);
  const std::string way = folder_.Sub("way");
  fs::create_symlink(above_, way);
  ExpectServes(way + "/site");
  if (!IsRoot()) return;
  Give(way, kOther);
  ExpectRefused(way + "/site", "the link " + way + " belongs to uid 50002");
}

TEST_F(StoreDirSite, OneThatComesLaterIsNotBelievedUnseen) {
  const std::string later = folder_.Sub("later");
  const auto dir = Open(later);
  EXPECT_EQ(dir->reason(), later + ": does not exist");
  ASSERT_EQ(StoreDir::Open(later, {})->Publish(entry_.action, entry_.bytes),
            StoreDir::Published::kNew);
  chmod(later.c_str(), 0777);
  EXPECT_FALSE(dir->Find(entry_.action).found);
}

}  // namespace
}  // namespace tilewright::test
