#include "tilewright/records.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "core/random.h"

extern char** environ;

namespace tilewright {
namespace {

namespace fs = std::filesystem;

Record Sample(int i, const std::string& who = "test") {
  Record record;
  record.op = "gemm";
  record.problem = "m=" + std::to_string(i % 7) + " n=64 k=32";
  record.scope = {"cpu/test", "", MeasurePolicy::kCold};
  record.kernel = "gemm.kernel" + std::to_string(i % 5);
  record.fingerprint = "f1";
  record.spec = "swizzle=0 splits=1";
  record.samples = 10 + i;
  record.median_us = 12.25 + i;
  record.low_us = 12 + i, record.high_us = 12.5 + i;
  record.predicted_us = 0.1 * i;
  record.chosen = i % 3 == 0;
  record.unix_ms = 1000 + i;
  record.evidence = who;
  return record;
}
std::vector<Record> Samples(int count, const std::string& who = "test") {
  std::vector<Record> records;
  for (int i = 0; i < count; ++i) records.push_back(Sample(i, who));
  return records;
}

class RecordsTest : public testing::Test {
 protected:
  RecordsTest() {
    char name[] = "tilewright-records-XXXXXX";
    folder_ = fs::temp_directory_path() / name;
    std::string text = folder_.string();
    EXPECT_NE(mkdtemp(text.data()), nullptr);
    folder_ = text;
    path_ = (folder_ / "records.sqlite").string();
  }
  ~RecordsTest() override {
    std::error_code ignored;
    fs::permissions(folder_, fs::perms::owner_all, ignored);
    fs::remove_all(folder_, ignored);
  }
  static std::string Slurp(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Spill(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  int FilesLike(const std::string& part) const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      count += entry.path().filename().string().find(part) != std::string::npos ? 1 : 0;
    }
    return count;
  }
  // Starts the helper that writes `batches` batches of records; returns its process id.
  pid_t StartWriter(const std::string& who, int batches) const {
    const std::string count = std::to_string(batches);
    const std::string program = TILEWRIGHT_RECORDS_WRITER;
    std::vector<char*> argv{const_cast<char*>(program.c_str()), const_cast<char*>(path_.c_str()),
                            const_cast<char*>(who.c_str()), const_cast<char*>(count.c_str()),
                            nullptr};
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv.data(), environ), 0)
        << program;
    return pid;
  }
  void Sql(const char* sql) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(RecordsTest, WhatIsAppendedIsThereForTheNextProcess) {
  {
    Records records = Records::Open((folder_ / "new" / "deep" / "records.sqlite").string());
    ASSERT_TRUE(records.Append(Samples(20)));
    EXPECT_TRUE(records.warnings().empty());
    EXPECT_TRUE(records.GetStat().persistent);
  }
  Records again = Records::Open((folder_ / "new" / "deep" / "records.sqlite").string());
  std::vector<Record> loaded = again.Load();
  ASSERT_EQ(loaded.size(), 20u);
  EXPECT_TRUE(std::is_sorted(loaded.begin(), loaded.end(),
                             [](const Record& x, const Record& y) { return x.id < y.id; }));
  const auto third =
      std::find_if(loaded.begin(), loaded.end(), [](const Record& r) { return r.unix_ms == 1003; });
  const Record want = Sample(3);
  EXPECT_EQ(third->problem, want.problem);
  EXPECT_EQ(third->scope, want.scope);
  EXPECT_EQ(third->kernel, want.kernel);
  EXPECT_EQ(third->median_us, want.median_us);
  EXPECT_EQ(third->predicted_us, want.predicted_us);
  EXPECT_EQ(third->samples, want.samples);
  EXPECT_TRUE(third->chosen);
}

TEST_F(RecordsTest, TheSameRecordTwiceIsOneRecord) {
  Records records = Records::Open(path_);
  ASSERT_TRUE(records.Append(Samples(5)));
  ASSERT_TRUE(records.Append(Samples(5)));
  EXPECT_EQ(records.Load().size(), 5u);
  Records memory = Records::Open("");
  ASSERT_TRUE(memory.Append(Samples(5)));
  ASSERT_TRUE(memory.Append(Samples(5)));
  EXPECT_EQ(memory.Load().size(), 5u);
  EXPECT_FALSE(memory.GetStat().persistent);
}

TEST_F(RecordsTest, FiltersAndCountsAndRemoves) {
  Records records = Records::Open(path_);
  std::vector<Record> rows = Samples(14);
  rows[2].verdict = Verdict::kWrong;
  rows[3].scope.device = "cpu/else";
  rows[4].op = "norm";
  ASSERT_TRUE(records.Append(rows));
  EXPECT_EQ(records.Load({"gemm", "", ""}).size(), 13u);
  EXPECT_EQ(records.Load({"gemm", "m=0 n=64 k=32", ""}).size(), 2u);
  EXPECT_EQ(records.Load({"", "", "cpu/else"}).size(), 1u);
  const Records::Stat stat = records.GetStat();
  EXPECT_EQ(stat.measurements, 13);
  EXPECT_EQ(stat.quarantined, 1);
  EXPECT_EQ(stat.problems, 8);
  const std::vector<std::string> drop{records.Load()[0].id, "nothing"};
  EXPECT_EQ(*records.Remove(drop), 1);
  EXPECT_EQ(records.Load().size(), 13u);
}

TEST_F(RecordsTest, OddTextsAndNumbersAreStoredSoThatTheyReadBack) {
  Records records = Records::Open(path_);
  Record odd = Sample(1);
  odd.evidence = std::string("bad \xff\xfe utf-8 'quote' \"q\" \n", 26);
  odd.median_us = NAN, odd.high_us = INFINITY;
  odd.extra = R"({"boost_mhz":4100})";
  Record junk = Sample(2);
  junk.extra = "not json";
  ASSERT_TRUE(records.Append(std::vector<Record>{odd, junk}));
  const auto loaded = records.Load();
  ASSERT_EQ(loaded.size(), 2u);
  EXPECT_EQ(records.GetStat().corrupt, 0);
  const Record& back = loaded[0].unix_ms == 1001 ? loaded[0] : loaded[1];
  EXPECT_EQ(back.median_us, 0);
  EXPECT_EQ(back.extra, odd.extra);
  std::ostringstream out;
  EXPECT_EQ(records.Export(out), 2);
  Records copy = Records::Open("");
  std::istringstream in(out.str());
  EXPECT_EQ(copy.Import(in)->added, 2);
}

TEST_F(RecordsTest, ExportAndImportMergeWithoutLossOrDoubles) {
  Records one = Records::Open(path_), two = Records::Open("");
  ASSERT_TRUE(one.Append(Samples(10, "one")));
  ASSERT_TRUE(two.Append(Samples(6, "two")));
  std::ostringstream from_one, from_two;
  EXPECT_EQ(one.Export(from_one), 10);
  EXPECT_EQ(two.Export(from_two), 6);
  std::istringstream to_one(from_two.str()), to_two(from_one.str());
  EXPECT_EQ(one.Import(to_one)->added, 6);
  EXPECT_EQ(two.Import(to_two)->added, 10);
  std::ostringstream first, second;
  one.Export(first), two.Export(second);
  EXPECT_EQ(first.str(), second.str());
  std::istringstream again(from_two.str());
  const auto result = one.Import(again);
  EXPECT_EQ(result->added, 0);
  EXPECT_EQ(result->known, 6);
}

TEST_F(RecordsTest, DamagedLinesOfAnImportAreCountedNotTaken) {
  Records source = Records::Open("");
  ASSERT_TRUE(source.Append(Samples(2)));
  std::ostringstream out;
  source.Export(out);
  const std::string text = out.str();
  Random random(9);
  for (int trial = 0; trial < 1500; ++trial) {
    std::string damaged = text;
    const std::size_t at = random.Below(text.size());
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random.Below(8)));
    Records victim = Records::Open("");
    std::istringstream in(damaged);
    const auto result = victim.Import(in);
    ASSERT_TRUE(result);
    ASSERT_LE(result->added, 2);
    ASSERT_GE(result->added + result->corrupt, text[at] == '\n' ? 1 : 2) << "byte " << at;
  }
  for (std::size_t length = 0; length < text.size(); length += 7) {
    Records victim = Records::Open("");
    std::istringstream in(text.substr(0, length));
    ASSERT_TRUE(victim.Import(in));
  }
}

TEST_F(RecordsTest, ADamagedFileIsMovedAsideOnceAndWorkGoesOn) {
  for (const std::string& bytes :
       {std::string("this is no database, only text that is long enough"),
        std::string(8192, '\xab')}) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    Spill(path_, bytes);
    {
      Records records = Records::Open(path_);
      ASSERT_EQ(records.warnings().size(), 1u);
      EXPECT_NE(records.warnings()[0].find("is damaged"), std::string::npos)
          << records.warnings()[0];
      EXPECT_EQ(FilesLike(".damaged-"), 1);
      ASSERT_TRUE(records.Append(Samples(3)));
      EXPECT_TRUE(records.GetStat().persistent);
    }
    Records next = Records::Open(path_);
    EXPECT_TRUE(next.warnings().empty());
    EXPECT_EQ(next.Load().size(), 3u);
    EXPECT_EQ(FilesLike(".damaged-"), 1);
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().string().find(".damaged-") == std::string::npos) continue;
      EXPECT_EQ(Slurp(entry.path()), bytes);
    }
  }
}

TEST_F(RecordsTest, AnyDamagedByteGivesTrueRecordsOrNone) {
  {
    Records records = Records::Open(path_);
    ASSERT_TRUE(records.Append(Samples(60)));
  }
  Sql("PRAGMA wal_checkpoint(TRUNCATE)");
  const std::string sound = Slurp(path_);
  std::set<std::string> ids;
  {
    Records records = Records::Open(path_);
    for (const Record& record : records.Load()) ids.insert(record.id);
  }
  ASSERT_EQ(ids.size(), 60u);
  Random random(17);
  for (int trial = 0; trial < 120; ++trial) {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    std::string damaged = sound;
    const std::size_t at = trial < 40 ? random.Below(110) : random.Below(sound.size());
    damaged[at] = static_cast<char>(damaged[at] ^ (1 + random.Below(255)));
    if (trial % 10 == 9) damaged.resize(random.Below(sound.size()));
    Spill(path_, damaged);
    Records records = Records::Open(path_);
    for (const Record& record : records.Load())
      ASSERT_TRUE(ids.contains(record.id)) << "byte " << at;
    const auto status = records.Append(Samples(2, "after"));
    static_cast<void>(
        status);  // may be refused where the damage is subtle; it must not crash or lose these two
    int after = 0;
    for (const Record& record : records.Load()) after += record.evidence == "after" ? 1 : 0;
    EXPECT_EQ(after, 2) << "byte " << at;
    for (const std::string& warning : records.warnings())
      EXPECT_EQ(warning.find('\n'), std::string::npos) << "byte " << at << ": " << warning;
  }
}

TEST_F(RecordsTest, ARowWhoseContentChangedIsNotUsed) {
  {
    Records records = Records::Open(path_);
    ASSERT_TRUE(records.Append(Samples(5)));
  }
  Sql("UPDATE measurement SET median_us = 0.001 WHERE unix_ms = 1002");
  Records records = Records::Open(path_);
  EXPECT_EQ(records.Load().size(), 4u);
  EXPECT_EQ(records.GetStat().corrupt, 1);
  ASSERT_EQ(records.warnings().size(), 1u);
  EXPECT_NE(records.warnings()[0].find("1 records fail their checksum"), std::string::npos);
}

TEST_F(RecordsTest, AFileOfANewerSchemaIsNeitherReadNorTouched) {
  {
    Records records = Records::Open(path_);
    ASSERT_TRUE(records.Append(Samples(5)));
  }
  Sql("PRAGMA user_version=99");
  Sql("PRAGMA wal_checkpoint(TRUNCATE)");
  const std::string before = Slurp(path_);
  {
    Records records = Records::Open(path_);
    EXPECT_EQ(records.Load().size(), 0u);
    ASSERT_TRUE(records.Append(Samples(2)));
    EXPECT_EQ(records.Load().size(), 2u);  // in memory
    ASSERT_EQ(records.warnings().size(), 1u);
    EXPECT_NE(records.warnings()[0].find("newer version (schema 99, this version reads 1)"),
              std::string::npos)
        << records.warnings()[0];
  }
  EXPECT_EQ(Slurp(path_), before);
}

TEST_F(RecordsTest, SomebodyElsesDatabaseIsNotTouched) {
  Sql("CREATE TABLE cookies(host TEXT)");
  const std::string before = Slurp(path_);
  Records records = Records::Open(path_);
  EXPECT_EQ(records.warnings().size(), 1u);
  EXPECT_TRUE(records.Append(Samples(2)));
  EXPECT_EQ(records.Load().size(), 2u);
  EXPECT_EQ(Slurp(path_), before);
}

TEST_F(RecordsTest, AnUnusableFolderDegradesToMemoryWithOneWarning) {
  Spill(folder_ / "file", "x");
  for (const std::string& path : {(folder_ / "file" / "records.sqlite").string(),
                                  std::string("/proc/self/fdinfo/records.sqlite"),
                                  std::string("/proc/tilewright/records.sqlite")}) {
    Records records = Records::Open(path);
    ASSERT_EQ(records.warnings().size(), 1u) << path;
    ASSERT_TRUE(records.Append(Samples(3)));
    EXPECT_EQ(records.Load().size(), 3u);
    EXPECT_EQ(records.warnings().size(), 1u);
    EXPECT_FALSE(records.GetStat().persistent);
  }
}

TEST_F(RecordsTest, AReadOnlyFolderIsReadAndWarnedAbout) {
  {
    Records records = Records::Open(path_);
    ASSERT_TRUE(records.Append(Samples(4)));
  }
  chmod(path_.c_str(), 0444);
  chmod(folder_.c_str(), 0555);
  // Permissions do not bind root: be somebody else for a while.
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  {
    Records records = Records::Open(path_);
    ASSERT_EQ(records.warnings().size(), 1u);
    EXPECT_NE(records.warnings()[0].find("cannot be written"), std::string::npos)
        << records.warnings()[0];
    EXPECT_EQ(records.Load().size(), 4u);
    EXPECT_TRUE(records.Append(Samples(2, "new")));
    EXPECT_EQ(records.Load().size(), 6u);
    EXPECT_FALSE(records.GetStat().persistent);
    EXPECT_EQ(records.warnings().size(), 1u);
    Records::Options read_only;
    read_only.read_only = true;
    Records quiet = Records::Open(path_, read_only);
    EXPECT_EQ(quiet.Load().size(), 4u);
    EXPECT_TRUE(quiet.warnings().empty());
  }
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
}

TEST_F(RecordsTest, ReadOnlyModeReadsAndWritesNothing) {
  Records::Options options;
  options.read_only = true;
  {
    Records absent = Records::Open(path_, options);
    EXPECT_TRUE(absent.Append(Samples(2)));
    EXPECT_EQ(absent.Load().size(), 2u);
    EXPECT_FALSE(fs::exists(path_));
  }
  {
    Records records = Records::Open(path_);
    ASSERT_TRUE(records.Append(Samples(4)));
  }
  const std::string before = Slurp(path_);
  Records records = Records::Open(path_, options);
  EXPECT_TRUE(records.warnings().empty());
  EXPECT_TRUE(records.Append(Samples(3, "new")));
  EXPECT_EQ(records.Load().size(), 7u);
  EXPECT_EQ(Slurp(path_), before);
}

TEST_F(RecordsTest, AFullDiskKeepsTheEarlierRecordsAndWarnsOnce) {
  Records::Options options;
  options.max_pages = 12;
  {
    Records records = Records::Open(path_, options);
    ASSERT_TRUE(records.Append(Samples(5, "early")));
    Status status;
    for (int batch = 0; batch < 20; ++batch)
      status = records.Append(Samples(50, "batch" + std::to_string(batch)));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
    EXPECT_NE(status.error().message.find("full"), std::string::npos) << status.error().message;
    EXPECT_EQ(records.warnings().size(), 1u);
    EXPECT_EQ(records.Load().size(), 5u + 20 * 50);  // the rest is in memory
  }
  Records after = Records::Open(path_);
  int early = 0;
  for (const Record& record : after.Load()) early += record.evidence == "early" ? 1 : 0;
  EXPECT_EQ(early, 5);
  EXPECT_EQ(after.Load().size() % 50, 5u);  // whole batches only
}

TEST_F(RecordsTest, FourProcessesWriteAtOnceAndNothingIsLost) {
  std::vector<pid_t> writers;
  for (int i = 0; i < 4; ++i) writers.push_back(StartWriter("writer" + std::to_string(i), 25));
  for (const pid_t pid : writers) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  Records records = Records::Open(path_);
  EXPECT_EQ(records.Load().size(), 4u * 25 * 8);
  EXPECT_TRUE(records.warnings().empty());
}

TEST_F(RecordsTest, FourProcessesFindADamagedFileAndOneMovesIt) {
  Spill(path_, std::string(5000, 'z'));
  std::vector<pid_t> writers;
  for (int i = 0; i < 4; ++i) writers.push_back(StartWriter("writer" + std::to_string(i), 3));
  for (const pid_t pid : writers) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  Records records = Records::Open(path_);
  EXPECT_EQ(records.Load().size(), 4u * 3 * 8);
  EXPECT_EQ(FilesLike(".damaged-"), 1);
}

TEST_F(RecordsTest, AKilledWriterLosesNothingItHadFinished) {
  {
    Records records = Records::Open(path_);
    ASSERT_TRUE(records.Append(Samples(5, "early")));
  }
  for (int round = 0; round < 5; ++round) {
    const pid_t pid = StartWriter("victim" + std::to_string(round), 100000);
    std::this_thread::sleep_for(std::chrono::milliseconds(30 + 20 * round));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    Records records = Records::Open(path_);
    EXPECT_TRUE(records.warnings().empty());
    int early = 0;
    const auto loaded = records.Load();
    for (const Record& record : loaded) early += record.evidence == "early" ? 1 : 0;
    EXPECT_EQ(early, 5);
    EXPECT_EQ((loaded.size() - 5) % 8, 0u);  // batches of eight, whole or not at all
    ASSERT_TRUE(records.Append(Samples(1, "early")));
  }
}

TEST_F(RecordsTest, AForkedChildOpensItsOwnConnection) {
  Records records = Records::Open(path_);
  ASSERT_TRUE(records.Append(Samples(3)));
  const pid_t child = fork();
  if (child == 0) {
    const bool fine = records.Append(Samples(2, "child")).has_value() && records.Load().size() == 5;
    _exit(fine ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ASSERT_TRUE(records.Append(Samples(1, "parent")));
  EXPECT_EQ(records.Load().size(), 6u);
}

TEST_F(RecordsTest, ManyThreadsMayUseOneObject) {
  Records records = Records::Open(path_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&records, t] {
      for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(
            records.Append(Samples(2, "thread" + std::to_string(t) + "." + std::to_string(i))));
        EXPECT_GE(records.Load().size(), 2u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(records.Load().size(), 4u * 10 * 2);
}

TEST(Combine, SessionsAddUpWhateverTheirOrder) {
  std::vector<Record> records;
  for (int i = 0; i < 3; ++i) {
    Record record = Sample(0);
    record.kernel = "k", record.samples = 10 * (i + 1), record.median_us = 100.0 + i;
    record.low_us = record.median_us * 0.99, record.high_us = record.median_us * 1.01;
    record.chosen = i == 1, record.unix_ms = 50 + i, record.id = std::to_string(i);
    records.push_back(record);
  }
  Record bad = records[0];
  bad.verdict = Verdict::kWrong;
  records.push_back(bad);
  const auto combined = Combine(records);
  ASSERT_EQ(combined.size(), 1u);
  EXPECT_EQ(combined[0].samples, 60);
  EXPECT_NEAR(combined[0].median_us, 101.33, 0.01);
  EXPECT_GT(combined[0].low_us, 100.5);  // three sessions know more than one
  EXPECT_LT(combined[0].high_us, 102.2);
  EXPECT_EQ(combined[0].chosen_unix_ms, 51);
  std::rotate(records.begin(), records.begin() + 2, records.end());
  EXPECT_EQ(Combine(records)[0].median_us, combined[0].median_us);
}

}  // namespace
}  // namespace tilewright
