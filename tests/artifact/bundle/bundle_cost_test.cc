// What bundles cost, counted: a lookup allocates and reads nothing, an opening does not grow with
// the payloads, a payload is read once. The times are recorded by bench/artifact.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "artifact/bundle/bundle_test_util.h"
#include "core/allocation_probe.h"
#include "temp_folder.h"
#include "tilewright/bundle.h"

namespace tilewright {
namespace {

/// Bytes that this process has read by system calls; 0 where the system does not count.
std::int64_t BytesRead() {
  std::ifstream in("/proc/self/io");
  std::string word;
  std::int64_t bytes = 0;
  in >> word >> bytes;
  return word == "rchar:" ? bytes : 0;
}
/// What `work` reads. Reading the count is a read itself.
template <class F>
std::int64_t ReadBy(F&& work) {
  const std::int64_t before = BytesRead();
  work();
  return BytesRead() - before;
}
constexpr std::int64_t kOfTheCountItself = 4096;

class ThousandEntries : public ::testing::Test {
 protected:
  ThousandEntries() {
    test::SomeArtifacts some;
    std::vector<ArtifactData> artifacts;
    for (int i = 0; i < 1000; ++i) {
      artifacts.push_back(some.Make(i));
      present_.push_back(artifacts.back().request);
      absent_.push_back(some.Make(1000 + i).request);
    }
    test::SomeArtifacts::Choice large;
    large.cubin_bytes = 150000;
    artifacts.push_back(some.Make(5000, large));
    large_ = artifacts.back().request;
    path_ = folder_.Write("k.twb", *EncodeBundle(artifacts));
  }

  test::TempFolder folder_;
  std::string path_;
  std::vector<ArtifactKey> present_, absent_;
  ArtifactKey large_;
};

TEST_F(ThousandEntries, ALookupAllocatesAndReadsNothing) {
  const auto bundle = *Bundle::Open(path_);
  std::size_t found = 0;
  const std::int64_t before = AllocationProbe::Count();
  for (int round = 0; round < 20; ++round) {
    for (const ArtifactKey& key : absent_) found += bundle->Find(key) ? 1 : 0;
  }
  EXPECT_EQ(found, 0u);
  for (const ArtifactKey& key : present_) found += bundle->Find(key) ? 1 : 0;
  EXPECT_EQ(found, 1000u);
  EXPECT_EQ(AllocationProbe::Count(), before);
}

TEST_F(ThousandEntries, OpeningReadsHeaderAndIndexAndNoPayload) {
  if (BytesRead() == 0) GTEST_SKIP() << "/proc/self/io does not tell";
  std::shared_ptr<const Bundle> bundle;
  const std::int64_t read = ReadBy([&] { bundle = *Bundle::Open(path_); });
  std::uint64_t payload = bundle->file_bytes();  // where the first one starts
  for (std::size_t i = 0; i < bundle->size(); ++i) {
    payload = std::min(payload, bundle->entry(i).offset);
  }
  EXPECT_LE(read, static_cast<std::int64_t>(payload) + kOfTheCountItself);
  EXPECT_LT(static_cast<std::uint64_t>(read), bundle->file_bytes() / 2);
}

TEST_F(ThousandEntries, AnEntryIsReadOnceWhenItIsFirstLoaded) {
  if (BytesRead() == 0) GTEST_SKIP() << "/proc/self/io does not tell";
  const auto bundle = *Bundle::Open(path_);
  const std::size_t i = *bundle->Find(large_);
  const std::int64_t first = ReadBy([&] { ASSERT_TRUE(bundle->Load(i)); });
  EXPECT_GE(first, 150000);
  EXPECT_LE(first, 150000 + 2 * kOfTheCountItself) << "its payloads, and no other's";
  EXPECT_LE(ReadBy([&] {
              for (int k = 0; k < 100; ++k) ASSERT_TRUE(bundle->Load(i));
            }),
            kOfTheCountItself);
}

}  // namespace
}  // namespace tilewright
