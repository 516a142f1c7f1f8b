#pragma once

#include <sys/types.h>

#include <compare>
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

/// The file, the records that could not be stored in it, and warnings. Everything but the
/// constructor requires `mutex` to be held.
struct Records::Impl {
  Impl(std::string file, const Options& given);
  ~Impl();

  const std::string path;
  const Options options;
  mutable std::mutex mutex;
  std::vector<Record> memory;  // records that are not in the file
  std::vector<std::string> warnings;
  int corrupt = 0;  // rows that failed their checksum, the most seen in one read

  /// The connection, opened if necessary; nullptr if it cannot be opened.
  RecordDb* Db();
  /// The same, for writing: nullptr if the file cannot be written. Checks the file once.
  RecordDb* WritableDb();
  /// Whether appended records reach the file.
  bool writable();

  std::vector<Record> Load(const Filter& filter);
  std::vector<Record> LoadRows(std::span<const std::int64_t> rowids);
  Status Store(std::vector<Record> records);
  /// Sets session, time and generation of new rows.
  void Stamp(std::vector<Record>& rows);

  void Warn(const std::string& kind, std::string text);
  /// Warns about problems found while reading; moves a damaged file aside. Returns the rows.
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
  bool checked_ = false;  // the whole file was checked since it was first opened
  bool closed_for_fork_ = false;
  pid_t owner_ = 0;
  std::set<std::string> warned_;
  std::int64_t appended_ms_ = 0;  // time of the last Append
  ForkSentry sentry_;             // last: its handler uses the other members
};

struct Records::Index::Rows {
  GroupOf group_of;
  std::string op;                          // "" = every operation
  std::set<std::string, std::less<>> ops;  // those that have rows
  RecordScope scope;
  struct Place {
    std::uint64_t group = 0;
    std::int64_t rowid = 0;
    std::uint64_t problem = 0;  // its hash
    auto operator<=>(const Place&) const = default;
  };
  std::vector<Place> groups;           // sorted
  std::vector<std::int64_t> failures;  // rowids

  bool Covers(const Record& record) const { return op.empty() || record.op == op; }
};

/// By id, each once.
void SortById(std::vector<Record>& records);

}  // namespace tilewright
