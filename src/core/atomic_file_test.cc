#include "core/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace tilewright {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tilewright_file_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t FileCount() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator{}));
  }

  fs::path folder_;
};

TEST_F(AtomicFileTest, WritesAndReadsBackAndReplaces) {
  const std::string path = Path("a");
  ASSERT_TRUE(WriteFileAtomic(path, std::string("one\0two", 7)));
  EXPECT_EQ(ReadFile(path).value(), std::string("one\0two", 7));
  ASSERT_TRUE(WriteFileAtomic(path, "shorter"));
  EXPECT_EQ(ReadFile(path).value(), "shorter");
  ASSERT_TRUE(WriteFileAtomic(path, ""));
  EXPECT_EQ(ReadFile(path).value(), "");
  EXPECT_EQ(FileCount(), 1u) << "no temporary file stays";
}

TEST_F(AtomicFileTest, ErrorsNameThePathAndTheReason) {
  const auto missing = ReadFile(Path("missing"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find(Path("missing")), std::string::npos);

  const auto no_folder = WriteFileAtomic(Path("no/such/folder"), "x");
  ASSERT_FALSE(no_folder);
  EXPECT_NE(no_folder.error().message.find("No such file"), std::string::npos)
      << no_folder.error().message;

  ASSERT_TRUE(WriteFileAtomic(Path("big"), std::string(100, 'x')));
  const auto large = ReadFile(Path("big"), 99);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(ReadFile(Path("big"), 100));

  EXPECT_EQ(MappedFile::Open(folder_.string()).error().code, ErrorCode::kIo);
}

TEST_F(AtomicFileTest, ARefusedWriteLeavesTheOldFileAndNoTemporary) {
  const std::string path = Path("kept");
  ASSERT_TRUE(WriteFileAtomic(path, "old"));
  // A file size limit fails the write as a full disk would.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto refused = WriteFileAtomic(path, std::string(5000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  EXPECT_EQ(ReadFile(path).value(), "old");
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(AtomicFileTest, AReaderBesideWritersSeesWholeFilesOnly) {
  const std::string path = Path("shared");
  ASSERT_TRUE(WriteFileAtomic(path, std::string(3000, 'a')));
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b'}) {
    writers.emplace_back([&path, letter] {
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(WriteFileAtomic(path, std::string(3000, letter)));
    });
  }
  for (int i = 0; i < 200; ++i) {
    const std::string text = ReadFile(path).value();
    ASSERT_EQ(text.size(), 3000u);
    ASSERT_EQ(text.find_first_not_of(text[0]), std::string::npos);
  }
  for (std::thread& writer : writers) writer.join();
}

TEST_F(AtomicFileTest, AMappedFileGivesItsBytesAndRefusesRangesBeyondItsEnd) {
  const std::string path = Path("mapped");
  std::string bytes(3 * 4096 + 100, 'x');
  bytes[5000] = 'y';
  ASSERT_TRUE(WriteFileAtomic(path, bytes));
  MappedFile file = MappedFile::Open(path).value();
  ASSERT_EQ(file.size(), bytes.size());
  EXPECT_EQ(file.Slice(5000, 1).value()[0], std::byte{'y'});
  EXPECT_TRUE(file.Slice(bytes.size(), 0));
  EXPECT_EQ(file.Slice(bytes.size(), 1).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(file.Slice(~std::uint64_t{0}, 2).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(file.Slice(1, ~std::uint64_t{0}).error().code, ErrorCode::kCorrupt);
  file.Prefetch(0, ~std::uint64_t{0});
  file.Discard(10, bytes.size());
  EXPECT_EQ(file.Slice(5000, 1).value()[0], std::byte{'y'})
      << "discarded pages come back from the file";

  MappedFile other = std::move(file);
  EXPECT_EQ(file.size(), 0u);
  EXPECT_EQ(other.size(), bytes.size());
  file = std::move(other);
  EXPECT_EQ(file.path(), path);
}

TEST_F(AtomicFileTest, AnEmptyFileMapsToNothing) {
  ASSERT_TRUE(WriteFileAtomic(Path("empty"), ""));
  const MappedFile file = MappedFile::Open(Path("empty")).value();
  EXPECT_EQ(file.size(), 0u);
  EXPECT_TRUE(file.Slice(0, 0));
  file.Discard(0, 10);
}

}  // namespace
}  // namespace tilewright
