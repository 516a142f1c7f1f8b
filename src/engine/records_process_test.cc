// Records and the processes that share a file: forks, writers at once, writers that are killed. A
// batch counts as committed when Append returned and the writer said so through a pipe.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tilewright/records.h"

extern char** environ;

// Interposed, so that a test can count what SQLite hands to the disk.
namespace {
std::atomic<int> g_syncs{0};
}
extern "C" int fsync(int fd) {
  g_syncs.fetch_add(1);
  return static_cast<int>(syscall(SYS_fsync, fd));
}
extern "C" int fdatasync(int fd) {
  g_syncs.fetch_add(1);
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

namespace tilewright {
namespace {

namespace fs = std::filesystem;

constexpr int kRowsOfABatch = 8;

std::vector<Record> Batch(const std::string& who, int batch) {
  std::vector<Record> rows(kRowsOfABatch);
  for (int i = 0; i < kRowsOfABatch; ++i) {
    Record& row = rows[static_cast<std::size_t>(i)];
    row.op = "gemm";
    row.problem = "batch=" + std::to_string(batch);
    row.kernel = "kernel" + std::to_string(i);
    row.evidence = who;
    row.median_us = 1 + batch;
    row.samples = 5;
  }
  return rows;
}

// One end writes numbers of committed batches, the other collects them.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~Pipe() {
    CloseReader();
    CloseWriter();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int writer() const { return ends_[1]; }
  void CloseWriter() { Close(ends_[1]); }
  void CloseReader() { Close(ends_[0]); }
  bool Write(std::int32_t number) const {
    return write(ends_[1], &number, sizeof number) == sizeof number;
  }
  // The next number; -1 when every writer is gone.
  std::int32_t Read() const {
    std::int32_t number = -1;
    ssize_t got = -1;
    do {
      got = read(ends_[0], &number, sizeof number);
    } while (got < 0 && errno == EINTR);
    return got == sizeof number ? number : -1;
  }
  std::vector<std::int32_t> ReadAll() const {
    std::vector<std::int32_t> numbers;
    for (std::int32_t number = Read(); number >= 0; number = Read()) numbers.push_back(number);
    return numbers;
  }

 private:
  static void Close(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  int ends_[2] = {-1, -1};
};

bool EndedWell(pid_t pid) {
  int status = -1;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class RecordsProcessTest : public testing::Test {
 protected:
  RecordsProcessTest() {
    std::string name = (fs::temp_directory_path() / "tilewright-records-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = (folder_ / "records.sqlite").string();
  }
  ~RecordsProcessTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  // Starts the helper that writes `batches` batches, and acknowledges each through `acks`.
  pid_t StartWriter(const std::string& who, int batches, const Pipe* acks = nullptr) const {
    const std::string count = std::to_string(batches), fd = acks != nullptr ? "3" : "-1";
    const std::string program = TILEWRIGHT_RECORDS_WRITER;
    std::vector<char*> argv{const_cast<char*>(program.c_str()), const_cast<char*>(path_.c_str()),
                            const_cast<char*>(who.c_str()),     const_cast<char*>(count.c_str()),
                            const_cast<char*>(fd.c_str()),      nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (acks != nullptr) posix_spawn_file_actions_adddup2(&actions, acks->writer(), 3);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ), 0)
        << program;
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  // Rows in the file by batch number, of one writer.
  std::map<int, int> RowsByBatch(const std::string& who) const {
    std::map<int, int> rows;
    Records records = Records::Open(path_);
    EXPECT_TRUE(records.warnings().empty());
    for (const Record& record : records.Load()) {
      if (record.evidence == who) ++rows[static_cast<int>(record.median_us) - 1];
    }
    return rows;
  }
  void ExpectCommitted(const std::string& who, const std::vector<std::int32_t>& acked) const {
    const std::map<int, int> rows = RowsByBatch(who);
    std::size_t lost = 0;
    for (const std::int32_t batch : acked) lost += rows.contains(batch) ? 0 : 1;
    EXPECT_EQ(lost, 0u) << "of " << acked.size() << " batches that " << who << " had committed";
    for (const auto& [batch, count] : rows)
      EXPECT_EQ(count, kRowsOfABatch) << "batch " << batch << " of " << who << " is in parts";
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(RecordsProcessTest, FourProcessesWriteAtOnceAndNothingIsLost) {
  std::vector<pid_t> writers;
  for (int i = 0; i < 4; ++i) writers.push_back(StartWriter("writer" + std::to_string(i), 25));
  for (const pid_t pid : writers) EXPECT_TRUE(EndedWell(pid));
  Records records = Records::Open(path_);
  EXPECT_EQ(records.Load().size(), 4u * 25 * kRowsOfABatch);
  EXPECT_TRUE(records.warnings().empty());
}

TEST_F(RecordsProcessTest, FourProcessesFindADamagedFileAndOneMovesIt) {
  std::ofstream(path_, std::ios::binary) << std::string(5000, 'z');
  std::vector<pid_t> writers;
  for (int i = 0; i < 4; ++i) writers.push_back(StartWriter("writer" + std::to_string(i), 3));
  for (const pid_t pid : writers) EXPECT_TRUE(EndedWell(pid));
  Records records = Records::Open(path_);
  EXPECT_EQ(records.Load().size(), 4u * 3 * kRowsOfABatch);
  const auto aside = std::count_if(
      fs::directory_iterator(folder_), fs::directory_iterator(), [](const fs::directory_entry& e) {
        return e.path().filename().string().find(".damaged-") != std::string::npos;
      });
  EXPECT_EQ(aside, 1);
}

TEST_F(RecordsProcessTest, AKilledWriterLosesNothingItHadCommitted) {
  for (int round = 0; round < 5; ++round) {
    const std::string who = "victim" + std::to_string(round);
    Pipe acks;
    const pid_t pid = StartWriter(who, 100000, &acks);
    acks.CloseWriter();
    std::vector<std::int32_t> acked;
    for (int i = 0; i < 5 + 7 * round; ++i) acked.push_back(acks.Read());
    kill(pid, SIGKILL);
    const std::vector<std::int32_t> rest = acks.ReadAll();
    acked.insert(acked.end(), rest.begin(), rest.end());
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_EQ(std::count(acked.begin(), acked.end(), -1), 0) << "the writer did not get that far";
    ExpectCommitted(who, acked);
  }
}

TEST_F(RecordsProcessTest, EveryBatchIsOnTheDiskBeforeItCountsAsCommitted) {
  Records records = Records::Open(path_);
  ASSERT_TRUE(records.Append(Batch("first", 0)));  // makes the file and its tables
  for (int batch = 1; batch <= 3; ++batch) {
    const int before = g_syncs.load();
    ASSERT_TRUE(records.Append(Batch("synced", batch)));
    EXPECT_GT(g_syncs.load(), before) << "batch " << batch << " was never handed to the disk";
  }
}

TEST_F(RecordsProcessTest, AForkedChildWritesBesideItsParent) {
  Records records = Records::Open(path_);
  ASSERT_TRUE(records.Append(Batch("parent", 0)));
  const pid_t child = fork();
  if (child == 0) {
    const bool fine =
        records.Append(Batch("child", 0)).has_value() && records.Load().size() == 2 * kRowsOfABatch;
    _exit(fine ? 0 : 1);
  }
  EXPECT_TRUE(EndedWell(child));
  ASSERT_TRUE(records.Append(Batch("parent", 1)));
  EXPECT_EQ(records.Load().size(), 3u * kRowsOfABatch);
  EXPECT_TRUE(records.warnings().empty());
}

TEST_F(RecordsProcessTest, AParentThatEndsTakesNothingFromTheChildThatStillWrites) {
  Pipe acks, end_now;
  const pid_t parent = fork();
  if (parent == 0) {
    pid_t child = -1;
    {
      Records records = Records::Open(path_);
      if (!records.Append(Batch("parent", 0))) _exit(1);
      child = fork();
      if (child == 0) {
        for (int batch = 0; batch < 300; ++batch) {
          if (!records.Append(Batch("child", batch)) || !records.warnings().empty()) _exit(1);
          if (!acks.Write(batch)) _exit(2);
        }
        _exit(records.GetStat().persistent ? 0 : 3);
      }
      if (end_now.Read() < 0) _exit(4);
    }  // closes the parent's connection, with all that SQLite does then
    _exit(EndedWell(child) ? 0 : 5);
  }
  acks.CloseWriter();
  std::vector<std::int32_t> acked;
  for (int i = 0; i < 20; ++i) acked.push_back(acks.Read());
  ASSERT_TRUE(end_now.Write(1));
  const std::vector<std::int32_t> rest = acks.ReadAll();
  acked.insert(acked.end(), rest.begin(), rest.end());
  EXPECT_TRUE(EndedWell(parent));
  ASSERT_EQ(acked.size(), 300u);
  ExpectCommitted("child", acked);
}

TEST_F(RecordsProcessTest, ForksInTheMiddleOfAnotherThreadsWritesLoseNothing) {
  Records records = Records::Open(path_);
  ASSERT_TRUE(records.Append(Batch("first", 0)));
  std::atomic<bool> stop{false};
  std::vector<std::int32_t> written;
  std::thread writer([&] {
    for (int batch = 0; !stop.load(); ++batch) {
      if (records.Append(Batch("thread", batch))) written.push_back(batch);
    }
  });
  constexpr int kChildren = 4, kBatches = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < kChildren; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int batch = 0; batch < kBatches; ++batch) {
        if (!records.Append(Batch("child" + std::to_string(i), batch))) _exit(1);
      }
      _exit(records.warnings().empty() ? 0 : 2);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) EXPECT_TRUE(EndedWell(child));
  stop.store(true);
  writer.join();
  ExpectCommitted("thread", written);
  std::vector<std::int32_t> all;
  for (int batch = 0; batch < kBatches; ++batch) all.push_back(batch);
  for (int i = 0; i < kChildren; ++i) ExpectCommitted("child" + std::to_string(i), all);
}

// clone() without the C library runs no fork handlers: the connection is there, and its locks are
// not. Such a child must not touch it.
TEST_F(RecordsProcessTest, AChildMadeWithoutForkHandlersKeepsToItsMemory) {
  Records records = Records::Open(path_);
  ASSERT_TRUE(records.Append(Batch("parent", 0)));
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child == 0) {
    const bool fine = records.Append(Batch("child", 0)).has_value() &&
                      records.Load().size() == kRowsOfABatch && records.warnings().size() == 1 &&
                      !records.GetStat().persistent;
    _exit(fine ? 0 : 1);
  }
  EXPECT_TRUE(EndedWell(child));
  ASSERT_TRUE(records.Append(Batch("parent", 1)));
  EXPECT_TRUE(RowsByBatch("child").empty());
  EXPECT_EQ(RowsByBatch("parent").size(), 2u);
}

}  // namespace
}  // namespace tilewright
