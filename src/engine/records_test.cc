#include "tilewright/records.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "core/random.h"

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

TEST_F(RecordsTest, NewRowsGetOneSessionAndTheNextGenerationOfTheirProblem) {
  const auto fresh = [](const std::string& problem, const std::string& device = "cpu/test") {
    Record record = Sample(0);
    record.problem = problem, record.scope.device = device, record.unix_ms = 0;
    return record;
  };
  const auto generations = [](const Records& records, const std::string& problem) {
    std::multiset<std::int64_t> all;
    for (const Record& row : records.Load({"", problem, "cpu/test"})) all.insert(row.generation);
    return all;
  };
  Records records = Records::Open(path_);
  ASSERT_TRUE(records.Append(std::vector<Record>{fresh("p"), fresh("q"), fresh("p", "cpu/b")}));
  Record future = fresh("p");
  future.unix_ms = 9'000'000'000'000, future.generation = 5, future.session = "theirs";
  ASSERT_TRUE(records.Append(std::vector<Record>{future}));
  ASSERT_TRUE(records.Append(std::vector<Record>{fresh("p"), fresh("q")}));
  EXPECT_EQ(generations(records, "p"), (std::multiset<std::int64_t>{1, 5, 6}));
  EXPECT_EQ(generations(records, "q"), (std::multiset<std::int64_t>{1, 2}));
  std::map<std::string, int> sessions;
  for (const Record& row : records.Load()) ++sessions[row.session];
  EXPECT_EQ(sessions.size(), 3u);
  EXPECT_EQ(sessions["theirs"], 1);
  // Another object, another process: the file is what is known.
  Records again = Records::Open(path_);
  ASSERT_TRUE(again.Append(std::vector<Record>{fresh("p")}));
  EXPECT_EQ(generations(again, "p"), (std::multiset<std::int64_t>{1, 5, 6, 7}));
  Records memory = Records::Open("");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(memory.Append(std::vector<Record>{fresh("p")}));
  EXPECT_EQ(generations(memory, "p"), (std::multiset<std::int64_t>{1, 2, 3}));
}

TEST_F(RecordsTest, WhatASessionSaidOfItselfSurvivesTheFileAndTheExport) {
  Records records = Records::Open(path_);
  Record whole = Sample(1), stopped = Sample(2), later = Sample(3);
  whole.generation = 7, whole.session = "00ff";
  stopped.generation = 1, stopped.session = "no hex \"quoted\"", stopped.finished = false;
  later.generation = 2, later.session = "ab", later.extra = R"({"boost_mhz":4100})";
  ASSERT_TRUE(records.Append(std::vector<Record>{whole, stopped, later, Sample(4)}));
  std::ostringstream out;
  EXPECT_EQ(records.Export(out), 4);
  Records copy = Records::Open("");
  std::istringstream in(out.str());
  EXPECT_EQ(copy.Import(in)->added, 4);
  for (const Records* from : {&records, &copy}) {
    std::map<std::int64_t, Record> by_time;
    for (const Record& row : from->Load()) by_time[row.unix_ms] = row;
    ASSERT_EQ(by_time.size(), 4u);
    for (const Record& want : {whole, stopped, later, Sample(4)}) {
      const Record& row = by_time[want.unix_ms];
      EXPECT_EQ(row.generation, want.generation);
      EXPECT_EQ(row.session, want.session);
      EXPECT_EQ(row.finished, want.finished);
      EXPECT_EQ(row.extra, want.extra);
    }
  }
  EXPECT_EQ(records.GetStat().corrupt, 0);
}

TEST_F(RecordsTest, AnIndexFindsTheRowsOfAGroupAndEveryFailure) {
  const RecordScope scope{"cpu/test", "", MeasurePolicy::kCold};
  const auto last_digit = [](std::string_view, std::string_view problem) {
    return static_cast<std::uint64_t>(problem.back());
  };
  for (const std::string& path : {path_, std::string()}) {
    Records records = Records::Open(path);
    std::vector<Record> rows;
    for (int i = 0; i < 60; ++i) {
      Record row = Sample(i);
      row.problem = "m=" + std::to_string(i);
      if (i % 15 == 1) row.op = "norm";
      if (i % 15 == 2) row.scope.device = "cpu/else";
      if (i % 15 == 3) row.scope.libraries = "lib-2";
      if (i % 15 == 4) row.scope.policy = MeasurePolicy::kWarm;
      if (i % 15 == 5) row.verdict = Verdict::kWrong;
      if (i % 15 == 6) row.verdict = Verdict::kCrash, row.scope.policy = MeasurePolicy::kWarm;
      if (i % 15 == 7) row.verdict = Verdict::kWrong, row.scope.libraries = "lib-2";
      rows.push_back(row);
    }
    ASSERT_TRUE(records.Append(rows));
    const Records::Index index = records.MakeIndex("gemm", scope, last_digit);
    for (char digit = '0'; digit <= '9'; ++digit) {
      std::set<std::string> want, got;
      for (const Record& row : rows) {
        if (row.op == "gemm" && row.scope == scope && row.verdict == Verdict::kOk &&
            row.problem.back() == digit) {
          want.insert(row.problem);
        }
      }
      for (const Record& row : records.LoadGroup(index, static_cast<std::uint64_t>(digit)))
        got.insert(row.problem);
      EXPECT_EQ(got, want) << digit;
    }
    EXPECT_EQ(records.LoadFailures(index).size(), 8u);
    // What is gone since is not served, nor what took its place.
    std::vector<std::string> drop;
    for (const Record& row : records.Load()) drop.push_back(row.id);
    ASSERT_TRUE(records.Remove(drop));
    Record other = Sample(61);
    other.problem = "m=61";
    ASSERT_TRUE(records.Append(std::vector<Record>{other}));
    EXPECT_TRUE(records.LoadGroup(index, '0').empty());
    EXPECT_TRUE(records.LoadFailures(index).empty());
  }
}

TEST_F(RecordsTest, ARowOfAGroupIsCheckedBeforeItIsUsed) {
  Records records = Records::Open(path_);
  ASSERT_TRUE(records.Append(Samples(7)));
  Sql("UPDATE measurement SET median_us = 0.001 WHERE unix_ms = 1002");
  Sql("UPDATE measurement SET verdict = 'wrong' WHERE unix_ms = 1003");
  const auto all = [](std::string_view, std::string_view) { return std::uint64_t{1}; };
  const Records::Index index =
      records.MakeIndex("gemm", {"cpu/test", "", MeasurePolicy::kCold}, all);
  EXPECT_EQ(records.LoadGroup(index, 1).size(), 5u);
  EXPECT_TRUE(records.LoadFailures(index).empty());
  ASSERT_EQ(records.warnings().size(), 1u);
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

// One process moves the file at a time: a second one would move its successor.
TEST_F(RecordsTest, ADamagedFileIsMovedAsideUnderALock) {
  Spill(path_, std::string(5000, 'z'));
  const int lock = open((path_ + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  ASSERT_GE(lock, 0);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  std::thread opener([&] { EXPECT_EQ(Records::Open(path_).warnings().size(), 1u); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(FilesLike(".damaged-"), 0);
  close(lock);
  opener.join();
  EXPECT_EQ(FilesLike(".damaged-"), 1);
}

// Pages may be damaged that neither reading nor appending looks at until it is too late.
TEST_F(RecordsTest, AFileWithHiddenDamageIsMovedAsideBeforeItIsWrittenTo) {
  {
    Records records = Records::Open(path_);
    ASSERT_TRUE(records.Append(Samples(5)));
  }
  Sql("PRAGMA wal_checkpoint(TRUNCATE)");
  std::string bytes = Slurp(path_);
  bytes[39] = 5;  // free pages that are not there
  Spill(path_, bytes);
  Records records = Records::Open(path_);
  EXPECT_EQ(records.Load().size(), 5u);
  EXPECT_EQ(FilesLike(".damaged-"), 0);
  ASSERT_TRUE(records.Append(Samples(1, "after")));
  EXPECT_GE(FilesLike(".damaged-"), 1);  // the file, and its journal if there is one
  EXPECT_EQ(records.Load().size(), 1u);
  EXPECT_TRUE(records.GetStat().persistent);
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
    EXPECT_NE(records.warnings()[0].find("newer version (schema 99; this version reads 1)"),
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

}  // namespace
}  // namespace tilewright
