#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/record_db.h"
#include "engine/record_fork.h"
#include "tilewright/records.h"

namespace tilewright {

/// The file, what it would not take, and what went wrong. Everything but the constructor needs
/// `mutex` held.
struct Records::Impl {
  Impl(std::string file, const Options& given);
  ~Impl();

  const std::string path;
  const Options options;
  mutable std::mutex mutex;
  std::vector<Record> memory;  // what the file would not take
  std::vector<std::string> warnings;
  int corrupt = 0;  // rows that failed their checksum, the most seen at once

  /// The connection, opened if need be; nullptr where there is none to be had.
  RecordDb* Db();
  /// The same, for writing: nullptr where the file takes nothing. Checks the file once.
  RecordDb* WritableDb();
  /// What is appended reaches the file.
  bool writable();

  std::vector<Record> Load(const Filter& filter);
  std::vector<Record> LoadRows(std::span<const std::int64_t> rowids);
  Status Store(std::vector<Record> records);
  /// Session, time and generation for the rows that are new.
  void Stamp(std::vector<Record>& rows);

  void Warn(const std::string& kind, std::string text);
  /// Warns about what reading met; moves a damaged file aside. Returns the rows.
  std::vector<Record> Account(RecordDb::Loaded loaded);

 private:
  void Open(RecordDb::Depth depth);
  RecordDb::Opened Recover(RecordDb::Opened opened);
  void Adopt(RecordDb::Opened opened);
  /// Gives up a file that turned out to be damaged while it was in use.
  void Replace(const std::string& detail);
  static void CloseForFork(void* impl);

  std::unique_ptr<RecordDb> db_;
  bool writable_ = false;
  bool checked_ = false;  // the whole file, since it was opened first
  bool closed_for_fork_ = false;
  pid_t owner_ = 0;
  std::set<std::string> warned_;
  std::int64_t appended_ms_ = 0;  // by the last Append
  ForkSentry sentry_;             // last: nothing may be closed before all is there
};

struct Records::Index::Rows {
  GroupOf group_of;
  std::string op;                          // "" = every operation
  std::set<std::string, std::less<>> ops;  // those that have rows
  RecordScope scope;
  std::vector<std::pair<std::uint64_t, std::int64_t>> groups;  // group, rowid; sorted
  std::vector<std::int64_t> failures;                          // rowids

  bool Covers(const Record& record) const { return op.empty() || record.op == op; }
};

/// By id, each once.
void SortById(std::vector<Record>& records);

}  // namespace tilewright
