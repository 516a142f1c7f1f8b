#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tilewright/records.h"
#include "tilewright/result.h"

struct sqlite3;

namespace tilewright {

/// The SQLite file behind Records: one connection, used by one thread at a time. docs/records.md
/// describes the tables.
class RecordDb {
 public:
  /// The outcome of opening a file.
  enum class State {
    kReady,
    kReadOnly,  ///< readable, not writable
    kAbsent,    ///< read-only mode and no file
    kDamaged,   ///< not a SQLite file, or one whose check fails
    kNewer,     ///< newer schema: not touched
    kForeign,   ///< an intact SQLite file that is not ours: not touched
    kUnusable,  ///< neither readable nor creatable, or locked for too long
  };
  /// kDeep reads the whole file (Check); otherwise damage is detected when the damaged part is
  /// read.
  enum class Depth { kShallow, kDeep };
  struct Opened {
    State state = State::kUnusable;
    std::string detail;            ///< the message of the system or SQLite
    std::unique_ptr<RecordDb> db;  ///< in kReady and kReadOnly
  };
  static Opened Open(const std::string& path, const Records::Options& options, Depth depth);

  /// Moves a damaged file (and its journal) aside, unless another process did so first. Returns the
  /// new name, "" if the file is intact by now; kIo if it cannot be moved.
  static Result<std::string> MoveAside(const std::string& path, const Records::Options& options);

  ~RecordDb();
  RecordDb(const RecordDb&) = delete;
  RecordDb& operator=(const RecordDb&) = delete;

  /// Forgets a connection that this process inherited without a fork handler closing it. Does not
  /// close it, since its locks are the parent's.
  void Abandon() { db_ = nullptr; }

  /// SQLite's check of the whole file, which reads it once: "" if intact, else the first finding.
  std::string Check() const;

  Status Append(std::span<const Record> records);
  struct Loaded {
    std::vector<Record> records;
    int corrupt = 0;       ///< rows that fail their checksum
    bool damaged = false;  ///< the file, not only a row
    std::string trouble;   ///< SQLite's message if reading stopped early
  };
  Loaded Load(const Records::Filter& filter) const;
  Loaded LoadRows(std::span<const std::int64_t> rowids) const;

  /// Locates the rows of one operation ("": of all), device and set of libraries; reads as little
  /// of each as possible and checks nothing.
  struct Place {
    std::int64_t rowid = 0;
    std::string_view op, problem, policy, verdict;
    std::string_view extra;  ///< only if requested
  };
  enum class Columns { kPlace, kPlaceAndExtra };
  /// `trouble` is "" if all rows were read, else as in Loaded.
  Loaded Scan(std::string_view op, const RecordScope& scope, Columns columns,
              const std::function<void(const Place&)>& visit) const;
  Result<int> Remove(std::span<const std::string> ids);

 private:
  RecordDb(sqlite3* db, std::string path) : db_(db), path_(std::move(path)) {}
  static Opened OpenWith(const std::string& path, const Records::Options& options, bool immutable,
                         Depth depth);
  Status Setup(const Records::Options& options);
  Status Exec(const char* sql) const;
  Error Trouble(const char* doing) const;
  void Stopped(const char* doing, Loaded& result) const;

  sqlite3* db_ = nullptr;
  std::string path_;
};

}  // namespace tilewright
