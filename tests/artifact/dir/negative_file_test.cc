#include "artifact/dir/negative_file.h"

#include <gtest/gtest.h>

#include "core/sha256.h"
#include "dir_fixture.h"

namespace tilewright::test {
namespace {

/// The file of docs/artifact_store.md, whatever the sizes of its parts.
std::string FileOf(const ArtifactKey& action, const StoreDir::Negative& negative) {
  std::string bytes = "TWNEGAT1";
  const auto put = [&](std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  };
  bytes.append(action.bytes.begin(), action.bytes.end());
  put(static_cast<std::uint64_t>(negative.unix_s), 8);
  put(negative.action_record.size(), 4);
  put(negative.request_record.size(), 4);
  put(negative.log.size(), 4);
  put(0, 4);
  bytes += negative.action_record + negative.request_record + negative.log;
  const auto digest = Sha256(bytes);
  return digest ? bytes.append(digest->begin(), digest->end()) : "";
}

TEST(NegativeFile, IsThatOfTheDocument) {
  const ArtifactKey action = MakeTestEntry(1).action;
  const StoreDir::Negative negative{"a log", 1'790'000'000, "an action", "a request"};
  const auto bytes = EncodeNegative(action, negative);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(*bytes, FileOf(action, negative));
  const auto again = DecodeNegative(action, *bytes);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->log, negative.log);
  EXPECT_EQ(again->unix_s, negative.unix_s);
  EXPECT_EQ(again->action_record, negative.action_record);
  EXPECT_EQ(again->request_record, negative.request_record);
}

TEST(NegativeFile, LargerThanIsWrittenIsNotRead) {
  const ArtifactKey action = MakeTestEntry(1).action;
  StoreDir::Negative negative{std::string(kMaxNegativeLogBytes, 'l'), 1, "a", "r"};
  EXPECT_TRUE(DecodeNegative(action, FileOf(action, negative)));
  negative.log += 'l';
  EXPECT_EQ(DecodeNegative(action, FileOf(action, negative)).error().code, ErrorCode::kCorrupt);

  negative.log = "l";
  negative.request_record.resize(kMaxNegativeBytes - 64 - 32 - 2);
  ASSERT_EQ(FileOf(action, negative).size(), kMaxNegativeBytes);
  EXPECT_TRUE(DecodeNegative(action, FileOf(action, negative)));
  EXPECT_TRUE(EncodeNegative(action, negative));
  negative.action_record += 'a';
  EXPECT_EQ(DecodeNegative(action, FileOf(action, negative)).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(EncodeNegative(action, negative).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tilewright::test
