// Changes of the file while a bundle is open do not affect what was served, and nothing wrong is
// served afterwards.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "artifact/bundle/bundle_test_util.h"
#include "temp_folder.h"
#include "tilewright/bundle.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

/// Four kernels of which each part is larger than a page, in an open file.
class OpenBundle : public ::testing::Test {
 protected:
  OpenBundle() {
    test::SomeArtifacts::Choice large;
    large.cubin_bytes = 100000;
    for (int i = 0; i < 4; ++i) {
      large.ptx = test::RandomText(static_cast<std::uint64_t>(i) + 70, 20000);
      artifacts_.push_back(some_.Make(i, large));
    }
    bytes_ = *EncodeBundle(artifacts_);
    path_ = folder_.Write("k.twb", bytes_);
    bundle_ = *Bundle::Open(path_);
  }
  std::size_t IndexOf(const ArtifactData& artifact) const {
    return *bundle_->Find(artifact.request);
  }
  /// The entry whose cubin lies last in the file.
  std::size_t Last() const {
    std::size_t last = 0;
    for (std::size_t i = 1; i < bundle_->size(); ++i) {
      if (bundle_->entry(i).offset > bundle_->entry(last).offset) last = i;
    }
    return last;
  }
  /// Writes into the file that is open, in place.
  void Overwrite(std::uint64_t offset, const std::string& bytes) const {
    const int fd = ::open(path_.c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }
  void ExpectSame(const ArtifactData& got, const ArtifactData& want) const {
    EXPECT_EQ(got.cubin, want.cubin);
    EXPECT_EQ(got.ptx, want.ptx);
    EXPECT_EQ(got.source, want.source);
    EXPECT_EQ(got.request_record, want.request_record);
  }

  test::SomeArtifacts some_;
  std::vector<ArtifactData> artifacts_;
  test::TempFolder folder_;
  std::string bytes_, path_;
  std::shared_ptr<const Bundle> bundle_;
};

TEST_F(OpenBundle, TruncatedServesNoLongerButWhatWasServedStays) {
  const ArtifactData served = *bundle_->Load(IndexOf(artifacts_[2]));
  ASSERT_EQ(::truncate(path_.c_str(), 100), 0);
  ExpectSame(served, artifacts_[2]);  // a mapping would be a bus error here
  for (const ArtifactData& artifact : artifacts_) {
    const std::size_t i = IndexOf(artifact);
    const Result<ArtifactData> data = bundle_->Load(i);
    ASSERT_FALSE(data);
    EXPECT_EQ(data.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(data.error().message, HasSubstr("it has 100 bytes now"));
    EXPECT_EQ(bundle_->Check(i, {})->field, "payload_digest");
  }
  EXPECT_EQ(bundle_->Verify().good, 0u);
  EXPECT_EQ(bundle_->Verify().troubles.size(), 1u);
  ExpectSame(served, artifacts_[2]);
}

TEST_F(OpenBundle, OfAnotherLengthIsAnotherFileEvenWhereThisEntryIsStillThere) {
  const std::size_t first = Last() == 0 ? 1 : 0;
  for (const std::size_t bytes : {bytes_.size() - 1, bytes_.size() + 1}) {
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(bytes)), 0);
    EXPECT_THAT(bundle_->Load(first).error().message, HasSubstr("bytes now and had"));
    EXPECT_EQ(bundle_->Check(first, {})->field, "payload_digest");
    EXPECT_EQ(bundle_->Verify().troubles.size(), 1u);
    EXPECT_EQ(bundle_->Verify().good, 0u);
  }
  Overwrite(0, bytes_);
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(bytes_.size())), 0);
  EXPECT_TRUE(bundle_->Load(first));
}

TEST_F(OpenBundle, ChangedInPlaceServesTheOldBytesOrNone) {
  const std::size_t before = IndexOf(artifacts_[0]), after = IndexOf(artifacts_[1]);
  const ArtifactData served = *bundle_->Load(before);
  for (const std::size_t i : {before, after}) {
    Overwrite(bundle_->entry(i).offset + 5000, std::string(50, '!'));
  }
  ExpectSame(served, artifacts_[0]);
  const Result<ArtifactData> again = bundle_->Load(before);
  ASSERT_TRUE(again) << "from the copy that was checked";
  ExpectSame(*again, artifacts_[0]);
  EXPECT_EQ(again->cubin.data(), served.cubin.data()) << "one copy for all";
  const Result<ArtifactData> changed = bundle_->Load(after);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(changed.error().message, HasSubstr("payload digest of its cubin differs"));
  const Bundle::VerifyResult verified = bundle_->Verify();
  EXPECT_EQ(verified.good, 2u) << "Verify tells of the file, whatever was served from it";
  EXPECT_EQ(verified.troubles.size(), 2u);
  // The file put right serves.
  Overwrite(0, bytes_);
  EXPECT_TRUE(bundle_->Load(after));
  EXPECT_EQ(bundle_->Verify().good, 4u);
}

TEST_F(OpenBundle, CubinsKeepTheAlignmentOfTheFile) {
  for (const ArtifactData& artifact : artifacts_) {
    const ArtifactData data = *bundle_->Load(IndexOf(artifact));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data.cubin.data()) % 64, 0u);
  }
}

}  // namespace
}  // namespace tilewright
