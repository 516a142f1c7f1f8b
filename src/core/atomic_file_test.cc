#include "core/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/faulty_filesystem.h"
#include "tilewright/whole_file.h"

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

TEST_F(AtomicFileTest, WhetherAFileCanBeWrittenIsFoundOutWithoutTouchingIt) {
  ASSERT_TRUE(WriteWholeFile(Path("old"), "old"));
  EXPECT_TRUE(CanWriteWholeFile(Path("old")));
  EXPECT_TRUE(CanWriteWholeFile(Path("new")));
  EXPECT_EQ(ReadFile(Path("old")).value(), "old");
  EXPECT_EQ(FileCount(), 1u) << "neither the file nor a temporary one";
  for (const std::string& path :
       {Path("no/such/folder"), folder_.string(), std::string("/dev/null")}) {
    const Status able = CanWriteWholeFile(path), written = WriteWholeFile(path, "x");
    ASSERT_FALSE(able) << path;
    ASSERT_FALSE(written) << path;
    EXPECT_EQ(able.error().code, written.error().code);
    EXPECT_NE(able.error().message.find(path), std::string::npos) << able.error().message;
  }
}

TEST_F(AtomicFileTest, ALinkStaysALinkAndTheFileItNamesIsReplaced) {
  fs::create_directory(folder_ / "sub");
  ASSERT_TRUE(WriteFileAtomic(Path("sub/real"), "old"));
  fs::create_symlink("real", folder_ / "sub/near");
  fs::create_symlink("sub/near", folder_ / "far");
  ASSERT_TRUE(WriteFileAtomic(Path("far"), "new"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "far"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "sub/near"));
  EXPECT_EQ(ReadFile(Path("sub/real")).value(), "new");
  fs::create_symlink("sub/later", folder_ / "dangling");
  ASSERT_TRUE(WriteFileAtomic(Path("dangling"), "x"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "dangling"));
  EXPECT_EQ(ReadFile(Path("sub/later")).value(), "x");
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_NE(WriteFileAtomic(Path("loop"), "x").error().message.find("symbolic links"),
            std::string::npos);
}

TEST_F(AtomicFileTest, AReplacedFileKeepsItsMode) {
  ASSERT_TRUE(WriteFileAtomic(Path("secret"), "old"));
  ASSERT_EQ(chmod(Path("secret").c_str(), 0600), 0);
  ASSERT_TRUE(WriteFileAtomic(Path("secret"), "new"));
  struct stat info {};
  ASSERT_EQ(stat(Path("secret").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// In a container the next process has the number of the one that was killed.
TEST_F(AtomicFileTest, WhatAKilledProcessOfOurNumberLeftIsNotInTheWay) {
  std::string next;  // the name that is due
  {
    const Result<AtomicFile> file = AtomicFile::Create(Path("bundle"));
    ASSERT_TRUE(file);
    const std::string name = fs::directory_iterator(folder_)->path().string();
    const std::string before = Path("bundle") + "." + std::to_string(getpid()) + ".";
    ASSERT_EQ(name.rfind(before, 0), 0u) << name;
    next = before + std::to_string(std::stoul(name.substr(before.size())) + 1) + ".tmp";
  }
  std::ofstream(next) << "half";
  EXPECT_TRUE(WriteFileAtomic(Path("bundle"), "new"));
  EXPECT_EQ(*ReadFile(Path("bundle")), "new");
  EXPECT_EQ(*ReadFile(next), "half");
}

TEST_F(AtomicFileTest, WhatIsNoRegularFileIsRefusedOrWrittenDirectlyAndNeverReplaced) {
  EXPECT_NE(WriteFileAtomic(folder_.string(), "x").error().message.find("it is a folder"),
            std::string::npos);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const Status refused = WriteFileAtomic(Path("pipe"), "x");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("not a regular file"), std::string::npos);
  EXPECT_FALSE(WriteFileAtomic("/dev/null", "x"));
  EXPECT_TRUE(WriteFileAtomic("/dev/null", "x", AtomicFile::Special::kWriteDirectly));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  std::string got;
  std::thread reader([&] { got = ReadFile(Path("pipe")).value(); });
  EXPECT_TRUE(WriteFileAtomic(Path("pipe"), "hello", AtomicFile::Special::kWriteDirectly));
  reader.join();
  EXPECT_EQ(got, "hello");
  EXPECT_TRUE(fs::is_fifo(folder_ / "pipe"));
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(AtomicFileTest, ADescriptorIsWrittenWhereItPoints) {
  ASSERT_TRUE(WriteFileAtomic(Path("log"), "before "));
  const int fd = open(Path("log").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  for (const char* form : {"/dev/fd/", "/proc/self/fd/"}) {
    const std::string path = form + std::to_string(fd);
    EXPECT_TRUE(WriteFileAtomic(path, "more ", AtomicFile::Special::kWriteDirectly)) << path;
    EXPECT_FALSE(WriteFileAtomic(path, "more ")) << path;
  }
  close(fd);
  EXPECT_EQ(ReadFile(Path("log")).value(), "before more more ");
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(AtomicFileTest, AFileThatIsNotPublishedLeavesNothing) {
  ASSERT_TRUE(WriteFileAtomic(Path("kept"), "old"));
  {
    Result<AtomicFile> file = AtomicFile::Create(Path("kept"));
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->Append(std::as_bytes(std::span(std::string_view("half")))));
    EXPECT_EQ(FileCount(), 2u);
  }
  EXPECT_EQ(ReadFile(Path("kept")).value(), "old");
  EXPECT_EQ(FileCount(), 1u);
  const auto large =
      AtomicFile::Create(Path("kept"), AtomicFile::Special::kRefuse, std::uint64_t{1} << 62);
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("free"), std::string::npos) << large.error().message;
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(AtomicFileTest, IsSyncedBeforeItTakesItsPlaceAndItsFolderAfter) {
  using Call = test::FaultyFilesystem::Call;
  test::FaultyFilesystem files;
  files.Record();
  const std::string path = Path("a");
  ASSERT_TRUE(WriteFileAtomic(path, "bytes", AtomicFile::Special::kRefuse, files));
  const auto events = files.events();
  const std::size_t end = events.size();
  const std::size_t write = test::PlaceOf(events, Call::kWrite, path + ".");
  const std::size_t sync = test::PlaceOf(events, Call::kSync, path + ".", write);
  const std::size_t close = test::PlaceOf(events, Call::kClose, path + ".", sync);
  const std::size_t rename = test::PlaceOf(events, Call::kRename, path, close);
  const std::size_t folder = test::PlaceOf(events, Call::kSync, folder_.string(), rename);
  ASSERT_LT(write, end);
  ASSERT_LT(sync, end) << "a power cut after the rename may leave an empty file in its place";
  ASSERT_LT(close, end);
  ASSERT_LT(rename, end);
  ASSERT_LT(folder, end) << "or may bring the old file back";
  EXPECT_EQ(events[folder].path, folder_.string());
  EXPECT_EQ(test::PlaceOf(events, Call::kWrite, path + ".", sync), end) << "written after the sync";
  EXPECT_EQ(test::PlaceOf(events, Call::kRename, path), rename) << "renamed once";
}

TEST_F(AtomicFileTest, AnyStepThatFailsBeforeTheRenameLeavesTheOldFileAndNothingElse) {
  using Call = test::FaultyFilesystem::Call;
  const std::string path = Path("a");
  ASSERT_TRUE(WriteFileAtomic(path, "old"));
  fs::permissions(path, fs::perms(0640));
  for (const Call call :
       {Call::kOpen, Call::kSetMode, Call::kWrite, Call::kSync, Call::kClose, Call::kRename}) {
    test::FaultyFilesystem files;
    files.Arm({.kind = test::Fault::kError, .error = EIO, .only = call});
    const Status written = WriteFileAtomic(path, "new", AtomicFile::Special::kRefuse, files);
    ASSERT_EQ(files.fired(), 1);
    files.Disarm();
    ASSERT_FALSE(written) << "call " << static_cast<int>(call);
    EXPECT_EQ(written.error().code, ErrorCode::kIo);
    EXPECT_NE(written.error().message.find("Input/output error"), std::string::npos);
    EXPECT_EQ(ReadFile(path).value(), "old");
    EXPECT_EQ(FileCount(), 1u) << "call " << static_cast<int>(call);
  }
}

TEST_F(AtomicFileTest, AFolderThatCannotBeSyncedIsNoError) {
  test::FaultyFilesystem files;
  // The second sync, of the folder.
  files.Arm({.kind = test::Fault::kError,
             .step = 2,
             .error = EINVAL,
             .only = test::FaultyFilesystem::Call::kSync});
  const std::string path = Path("a");
  EXPECT_TRUE(WriteFileAtomic(path, "new", AtomicFile::Special::kRefuse, files));
  EXPECT_EQ(files.fired(), 1);
  EXPECT_EQ(ReadFile(path).value(), "new");
}

TEST_F(AtomicFileTest, ShortWritesAreContinued) {
  test::FaultyFilesystem files;
  files.Arm({.kind = test::Fault::kShort, .lasting = true});
  const std::string path = Path("a");
  ASSERT_TRUE(WriteFileAtomic(path, "some bytes", AtomicFile::Special::kRefuse, files));
  EXPECT_EQ(ReadFile(path).value(), "some bytes");
}

}  // namespace
}  // namespace tilewright
