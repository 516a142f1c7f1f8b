// The packed totals behind the caps of a folder, at the ends of their ranges, and how a folder
// handles a file that contains them.
#include "artifact/dir/total.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "artifact/dir/counters_file.h"
#include "dir_fixture.h"

namespace tilewright::test {
namespace {

constexpr TotalFormat kFormats[] = {kEntriesFormat, kBytesFormat};

/// How many changes a word of the format tells apart.
std::uint64_t ChangesToldApart(const TotalFormat& format) {
  return std::uint64_t{1} << (64 - 8 -
                              (std::bit_width(static_cast<std::uint64_t>(format.Max())) + 1));
}

TEST(Total, RangesAreThoseOfTheFileFormat) {
  EXPECT_EQ(kEntriesFormat.Max(), (std::int64_t{1} << 27) - 1);
  EXPECT_EQ(kBytesFormat.Max(), (std::int64_t{1} << 45) - 1);
  EXPECT_EQ(ChangesToldApart(kEntriesFormat), std::uint64_t{1} << 28);
  EXPECT_EQ(ChangesToldApart(kBytesFormat), 1024u);
}

TEST(Total, HoldsEveryValueOfItsRangeNegativeOnesToo) {
  for (const TotalFormat& format : kFormats) {
    for (const std::int64_t value :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{12345},
          std::int64_t{-12345}, format.Max() - 1, format.Max(), -format.Max(), -format.Max() - 1}) {
      EXPECT_EQ(format.Value(format.Surveyed(0, value)), value);
      EXPECT_EQ(format.Value(format.Surveyed(~std::uint64_t{0}, value)), value);
    }
    std::uint64_t word = 0;
    for (const std::int64_t amount : {300, -100, -500, 301}) word = format.Changed(word, amount);
    EXPECT_EQ(format.Value(word), 1);
  }
}

TEST(Total, AChangeAndItsOppositeLeaveAnotherWord) {
  for (const TotalFormat& format : kFormats) {
    const std::uint64_t before = format.Surveyed(0, 7);
    const std::uint64_t after = format.Changed(format.Changed(before, 5), -5);
    EXPECT_EQ(format.Value(after), format.Value(before));
    EXPECT_NE(after, before);
    EXPECT_TRUE(format.SameSurvey(after, before));
    EXPECT_NE(format.Changed(before, 0), before);
  }
}

TEST(Total, TheNumberOfChangesWrapsWithoutTouchingTheRest) {
  const std::uint64_t start = kBytesFormat.Surveyed(kBytesFormat.Surveyed(0, 0), 1000);
  std::uint64_t word = start;
  for (std::uint64_t i = 1; i < ChangesToldApart(kBytesFormat); ++i) {
    word = kBytesFormat.Changed(word, i % 2 == 0 ? 1 : -1);
    ASSERT_NE(word, start) << i;
    ASSERT_TRUE(kBytesFormat.SameSurvey(word, start)) << i;
  }
  EXPECT_EQ(kBytesFormat.Value(word), 999);
  EXPECT_EQ(kBytesFormat.Changed(word, 1), start);
  // The longer count of the other format, from just before its end.
  const std::uint64_t last = ~std::uint64_t{0} << 36;
  EXPECT_EQ(kEntriesFormat.Changed(last, 0), 0u);
  EXPECT_EQ(kEntriesFormat.Changed(last, -1), (std::uint64_t{1} << 28) - 1);
}

TEST(Total, TheNumberOfSurveysWrapsWithoutTouchingTheChanges) {
  for (const TotalFormat& format : kFormats) {
    const std::uint64_t start = format.Changed(0, 42);
    std::uint64_t word = start;
    for (int i = 1; i < 256; ++i) {
      word = format.Surveyed(word, 42);
      ASSERT_FALSE(format.SameSurvey(word, start)) << i;
    }
    EXPECT_EQ(format.Surveyed(word, 42), start);
  }
}

TEST(Total, BeyondItsRangeItStaysAtTheLimitUntilASurvey) {
  for (const TotalFormat& format : kFormats) {
    for (const std::int64_t amount :
         {std::int64_t{1}, format.Max(), std::int64_t{1} << 60, std::int64_t{1} << 62}) {
      const std::uint64_t before = format.Surveyed(0, format.Max() - 1);
      const std::uint64_t full = format.Changed(format.Changed(before, 1), amount);
      EXPECT_EQ(format.Value(full), format.Max());
      EXPECT_TRUE(format.SameSurvey(full, before));
      // By how much it was more, nobody knows: what goes must not make it look small.
      const std::uint64_t less = format.Changed(full, -amount);
      EXPECT_EQ(format.Value(less), format.Max());
      EXPECT_NE(less, full);
      EXPECT_EQ(format.Value(format.Surveyed(less, 3)), 3);
    }
    EXPECT_EQ(format.Value(format.Surveyed(0, std::numeric_limits<std::int64_t>::max())),
              format.Max());
    const std::uint64_t lowest = format.Changed(format.Surveyed(0, -format.Max()), -1000);
    EXPECT_EQ(format.Value(lowest), -format.Max() - 1);
    EXPECT_EQ(format.Value(format.Changed(lowest, 1)), -format.Max());
  }
}

/// A folder with two entries, in whose file of counters a test writes what it likes.
class TotalInAFolder : public StoreDirTest {
 protected:
  TotalInAFolder() {
    const auto dir = Open();
    for (int i = 0; i < 2; ++i) {
      const Entry entry = MakeTestEntry(i);
      EXPECT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
      bytes_ += static_cast<std::int64_t>(entry.bytes.size());
    }
  }
  void SetTotals(std::int64_t entries, std::int64_t bytes) {
    std::string file = ReadText(path_);
    const std::array<std::uint64_t, 3> words = {1, kEntriesFormat.Surveyed(0, entries),
                                                kBytesFormat.Surveyed(0, bytes)};
    std::memcpy(file.data() + 8 * CountersFile::kTotalsKnown, words.data(), sizeof words);
    WriteText(path_, file);
  }
  std::uint64_t Word(CountersFile::Word word) const {
    const std::string file = ReadText(path_);
    std::uint64_t value = 0;
    std::memcpy(&value, file.data() + 8 * static_cast<std::size_t>(word), sizeof value);
    return value;
  }
  StoreDir::Published PublishThird(std::uint64_t max_entries, std::uint64_t max_bytes) {
    StoreDir::Options options;
    options.max_entries = max_entries;
    options.max_bytes = max_bytes;
    const Entry entry = MakeTestEntry(2);
    return StoreDir::Open(root_, options)->Publish(entry.action, entry.bytes);
  }

  const std::string path_ = root_ + "/v1/counters";
  std::int64_t bytes_ = 0;
};

TEST_F(TotalInAFolder, LessThanNothingIsNoRoomButCountedAnew) {
  SetTotals(-5, bytes_);
  EXPECT_EQ(PublishThird(2, 0), StoreDir::Published::kNot);
  EXPECT_EQ(kEntriesFormat.Value(Word(CountersFile::kEntries)), 2);
  SetTotals(2, -1'000'000);
  EXPECT_EQ(PublishThird(0, static_cast<std::uint64_t>(bytes_)), StoreDir::Published::kNot);
  EXPECT_EQ(kBytesFormat.Value(Word(CountersFile::kEntryBytes)), bytes_);
  EXPECT_EQ(PublishThird(3, 0), StoreDir::Published::kNew);
}

TEST_F(TotalInAFolder, NearItsLimitItIsCountedAnewAndNeverWraps) {
  const auto third = static_cast<std::int64_t>(MakeTestEntry(2).bytes.size());
  // Caps above what can be counted are those of what can.
  SetTotals(kEntriesFormat.Max(), kBytesFormat.Max() - third + 1);
  EXPECT_EQ(PublishThird(std::numeric_limits<std::uint64_t>::max(),
                         std::numeric_limits<std::uint64_t>::max()),
            StoreDir::Published::kNew);
  EXPECT_EQ(kEntriesFormat.Value(Word(CountersFile::kEntries)), 3);
  EXPECT_EQ(kBytesFormat.Value(Word(CountersFile::kEntryBytes)), bytes_ + third);
}

TEST_F(TotalInAFolder, WithoutACapItStopsAtItsLimitWhereACapFindsIt) {
  SetTotals(kEntriesFormat.Max(), kBytesFormat.Max() - 1);
  EXPECT_EQ(PublishThird(0, 0), StoreDir::Published::kNew);
  EXPECT_EQ(kEntriesFormat.Value(Word(CountersFile::kEntries)), kEntriesFormat.Max());
  EXPECT_EQ(kBytesFormat.Value(Word(CountersFile::kEntryBytes)), kBytesFormat.Max());
  StoreDir::Options options;
  options.max_entries = 3;
  const Entry fourth = MakeTestEntry(3);
  EXPECT_EQ(StoreDir::Open(root_, options)->Publish(fourth.action, fourth.bytes),
            StoreDir::Published::kNot);
  EXPECT_EQ(kEntriesFormat.Value(Word(CountersFile::kEntries)), 3);
}

/// Another process counts all files at one call of a publisher after the other.
TEST_F(TotalInAFolder, ASurveyDuringAPublishDoesNotCountItsFileTwice) {
  StoreDir::Options options;
  options.max_entries = 1000;
  const auto other = StoreDir::Open(root_, options);
  options.files = &files_;
  const auto dir = StoreDir::Open(root_, options);
  for (int step = 1, fired = 1; fired != 0; ++step) {
    const Entry entry = MakeTestEntry(1 + step);
    files_.Arm({.kind = FaultyFilesystem::Fault::kHook, .step = step, .hook = [&] {
                  (void)other->Trim(true, false);
                }});
    ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew) << step;
    fired = static_cast<int>(files_.fired());
    files_.Disarm();
    bytes_ += static_cast<std::int64_t>(entry.bytes.size());
    ASSERT_EQ(kEntriesFormat.Value(Word(CountersFile::kEntries)), 2 + step) << step;
    ASSERT_EQ(kBytesFormat.Value(Word(CountersFile::kEntryBytes)), bytes_) << step;
    ASSERT_LT(step, 1000);
  }
}

}  // namespace
}  // namespace tilewright::test
