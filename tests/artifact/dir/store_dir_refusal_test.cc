// The other files of a folder: remembered failures and counters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>

#include "dir_fixture.h"

namespace tilewright::test {
namespace {

using testing::SizeIs;
namespace fs = std::filesystem;

TEST_F(StoreDirTest, ARefusalIsRememberedForItsTimeOnly) {
  StoreDir::Options options;
  options.negative_ttl_s = 1000;
  const auto dir = OpenFaulty(options);
  const ArtifactKey key = MakeTestEntry(1).action;
  files_.SetNow(5'000'000);
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
  files_.SetNow(5'000'999);
  EXPECT_TRUE(dir->FindNegative(key));
  EXPECT_EQ(dir->Sweep(false).removed_negative, 0u);
  files_.SetNow(5'001'000);
  EXPECT_FALSE(dir->FindNegative(key)) << "expired";
  files_.SetNow(4'999'000);
  EXPECT_FALSE(dir->FindNegative(key)) << "from the future";
  files_.SetNow(5'001'001);
  EXPECT_EQ(dir->Sweep(true).removed_negative, 1u);
  EXPECT_EQ(dir->Sweep(false).removed_negative, 1u);
  EXPECT_EQ(dir->GetTotals().negative, 0u);
}

TEST_F(StoreDirTest, ARefusalMayBeRememberedForEverOrNotAtAll) {
  using Limits = std::numeric_limits<std::int64_t>;
  const auto remembered = [&](std::int64_t ttl_s) {
    files_.SetNow(5'000'000);
    StoreDir::Options options;
    options.negative_ttl_s = ttl_s;
    const auto dir = OpenFaulty(options);
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
  const auto dir = Open();
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
  const auto dir = Open();
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
  const auto dir = Open();
  const ArtifactKey key = MakeTestEntry(1).action;
  fs::create_directories(NegativePath(root_, key));
  EXPECT_EQ(dir->PublishNegative(key, {"log", time(nullptr), "a", "r"}), StoreDir::Published::kNew);
  EXPECT_TRUE(dir->FindNegative(key));
  EXPECT_THAT(NamesIn(root_ + "/v1/quarantine"), SizeIs(1));
}

TEST_F(StoreDirTest, CountersAreSharedAndPersistent) {
  const auto one = Open(), two = Open();
  one->Count(0, 3);
  two->Count(0, 4);
  two->Count(StoreDir::kCounters - 1, 9);
  two->Count(StoreDir::kCounters, 1);  // ignored
  EXPECT_EQ(one->Counters()[0], 7u);
  EXPECT_TRUE(EndedWell(InChild([&] { Open()->Count(0, 10); })));
  EXPECT_EQ(one->Counters()[0], 17u);
  EXPECT_EQ(Open()->Counters()[StoreDir::kCounters - 1], 9u);
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
    auto dir = Open();
    dir->Count(2, 1);
    damage();
    dir->Count(2, 1);  // in the mapping of before: neither fatal nor an error
    (void)dir->Counters();
    const auto next = Open();
    next->Count(2, 1);
    EXPECT_GE(next->Counters()[2], 1u) << name;
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path))) << name;
    EXPECT_EQ(fs::file_size(path), 4096u) << name;
    EXPECT_EQ(next->state(), StoreDir::State::kReadWrite) << name;
  }
}

TEST_F(StoreDirTest, WhereNothingCanBeMappedCountersAreInMemory) {
  Fault fault;
  fault.kind = Fault::kError;
  fault.only = FaultyFilesystem::Call::kMap;
  fault.error = ENODEV;
  fault.lasting = true;
  files_.Arm(fault);
  const auto dir = OpenFaulty();
  EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite);
  dir->Count(0, 3);
  EXPECT_EQ(dir->Counters()[0], 3u);
  EXPECT_EQ(Open()->Counters()[0], 0u);
}

}  // namespace
}  // namespace tilewright::test
