#include "engine/record_db.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include "core/text.h"
#include "engine/record_text.h"

namespace tilewright {
namespace {

constexpr int kSchema = 1;
constexpr int kApplicationId = 0x74776c72;  // "twlr"

constexpr char kCreate[] =
    "CREATE TABLE IF NOT EXISTS measurement("
    "id TEXT PRIMARY KEY NOT NULL, op TEXT NOT NULL, problem TEXT NOT NULL, device TEXT NOT NULL, "
    "libraries TEXT NOT NULL,"
    "policy TEXT NOT NULL, kernel TEXT NOT NULL, fingerprint TEXT NOT NULL, spec TEXT NOT NULL, "
    "verdict TEXT NOT NULL,"
    "evidence TEXT NOT NULL, samples INTEGER NOT NULL, median_us REAL NOT NULL, low_us REAL NOT "
    "NULL, high_us REAL NOT NULL,"
    "predicted_us REAL NOT NULL, chosen INTEGER NOT NULL, unix_ms INTEGER NOT NULL, extra TEXT NOT "
    "NULL)";

constexpr char kInsert[] =
    "INSERT OR IGNORE INTO measurement(id, op, problem, device, libraries, policy, kernel, "
    "fingerprint, spec, verdict, evidence,"
    "samples, median_us, low_us, high_us, predicted_us, chosen, unix_ms, extra) "
    "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19)";

// Reads the table itself: an index that lost entries to a damaged page would hide rows without an
// error.
#define TILEWRIGHT_ROW                                                             \
  "SELECT id, op, problem, device, libraries, policy, kernel, fingerprint, spec, " \
  "verdict, evidence, samples, median_us, low_us, high_us, predicted_us, chosen, " \
  "unix_ms, extra FROM measurement NOT INDEXED "
constexpr char kSelect[] = TILEWRIGHT_ROW
    "WHERE (?1 = '' OR op = ?1) AND (?2 = '' OR problem = ?2) AND (?3 = '' OR device = ?3)";
constexpr char kSelectRow[] = TILEWRIGHT_ROW "WHERE rowid = ?1";
#undef TILEWRIGHT_ROW

constexpr char kScan[] =
    "SELECT rowid, op, problem, policy, verdict FROM measurement NOT INDEXED "
    "WHERE (?1 = '' OR op = ?1) AND device = ?2 AND libraries = ?3";
constexpr char kScanExtra[] =
    "SELECT rowid, op, problem, policy, verdict, extra FROM measurement NOT INDEXED "
    "WHERE (?1 = '' OR op = ?1) AND device = ?2 AND libraries = ?3";

/// SQLite reports some findings on several lines; our messages have one.
std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "; ";
    } else {
      line += c;
    }
  }
  return line;
}

class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  bool ok() const { return code_ == SQLITE_OK; }
  sqlite3_stmt* get() const { return statement_; }
  int Step() { return ok() ? sqlite3_step(statement_) : code_; }
  void Reset() { sqlite3_reset(statement_); }
  // The text must outlive the next step.
  void Bind(int index, std::string_view text) {
    sqlite3_bind_text(statement_, index, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  }
  void Bind(int index, double value) { sqlite3_bind_double(statement_, index, value); }
  void Bind(int index, std::int64_t value) { sqlite3_bind_int64(statement_, index, value); }
  // Valid until the next step or reset.
  std::string_view View(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    if (text == nullptr) return {};
    return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
  }
  std::string Text(int column) const { return std::string(View(column)); }
  double Real(int column) const { return sqlite3_column_double(statement_, column); }
  std::int64_t Integer(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

// The number that a pragma returns; nullopt on any error, which is stored in `code`.
std::optional<std::int64_t> PragmaNumber(sqlite3* db, const char* sql, int& code) {
  Statement statement(db, sql);
  code = statement.Step();
  if (code != SQLITE_ROW) return std::nullopt;
  return statement.Integer(0);
}

bool MeansDamaged(int code) {
  return (code & 0xff) == SQLITE_NOTADB || (code & 0xff) == SQLITE_CORRUPT;
}

// Whether the file system's locks and shared memory are unreliable for WAL.
bool OnNetwork(const std::string& path) {
  struct statfs info;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  if (statfs(folder.empty() ? "." : folder.c_str(), &info) != 0) return false;
  switch (static_cast<std::uint32_t>(info.f_type)) {
    case 0x6969:      // NFS
    case 0x517b:      // SMB
    case 0xff534d42:  // CIFS
    case 0xfe534d42:  // SMB2
    case 0x01021997:  // 9P
    case 0x65735546:  // FUSE
    case 0x0bd00bd0:  // Lustre
      return true;
    default:
      return false;
  }
}

// "file:" name of a path; SQLite wants '?', '#' and '%' escaped.
std::string UriOf(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '?' || c == '#' || c == '%') {
      uri += Format("%{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

// Held while a damaged file is moved, so that of several processes that find it, only one moves it
// and none moves its successor.
class RecoveryLock {
 public:
  explicit RecoveryLock(const std::string& path)
      : fd_(open((path + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    if (fd_ >= 0) static_cast<void>(flock(fd_, LOCK_EX));
  }
  ~RecoveryLock() {
    if (fd_ >= 0) close(fd_);
  }
  RecoveryLock(const RecoveryLock&) = delete;
  RecoveryLock& operator=(const RecoveryLock&) = delete;

 private:
  int fd_;
};

}  // namespace

RecordDb::~RecordDb() {
  if (db_ != nullptr) sqlite3_close_v2(db_);
}

Error RecordDb::Trouble(const char* doing) const {
  const int code = sqlite3_extended_errcode(db_);
  const ErrorCode kind = MeansDamaged(code) ? ErrorCode::kCorrupt : ErrorCode::kIo;
  return Error{kind, Format("{}: {}: {}", path_, doing, sqlite3_errmsg(db_))};
}

Status RecordDb::Exec(const char* sql) const {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return Fail(Trouble(sql));
  return {};
}

std::string RecordDb::Check() const {
  Statement check(db_, "PRAGMA quick_check(1)");
  const int code = check.Step();
  if (code == SQLITE_ROW) return check.Text(0) == "ok" ? std::string() : OneLine(check.Text(0));
  return MeansDamaged(code) ? OneLine(sqlite3_errmsg(db_)) : std::string();
}

RecordDb::Opened RecordDb::Open(const std::string& path, const Records::Options& options,
                                Depth depth) {
  if (options.read_only && !Exists(path)) return {State::kAbsent, {}, nullptr};
  Opened opened = OpenWith(path, options, false, depth);
  if (opened.state != State::kUnusable || !Exists(path)) return opened;
  // A file in WAL mode in a read-only place cannot be opened normally, since its shared-memory file
  // cannot be created. Nobody else can write there either, so it is a snapshot.
  Records::Options read_only = options;
  read_only.read_only = true;
  Opened snapshot = OpenWith(path, read_only, true, depth);
  if (snapshot.state != State::kReadOnly) return opened;
  snapshot.detail = opened.detail;
  return snapshot;
}

RecordDb::Opened RecordDb::OpenWith(const std::string& path, const Records::Options& options,
                                    bool immutable, Depth depth) {
  Opened result;
  const std::string name = immutable ? UriOf(path) : path;
  const int flags =
      (options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) |
      (immutable ? SQLITE_OPEN_URI : 0) | SQLITE_OPEN_NOMUTEX;  // Records has a mutex of its own
  sqlite3* raw = nullptr;
  const int opened = sqlite3_open_v2(name.c_str(), &raw, flags, nullptr);
  if (raw == nullptr) return {State::kUnusable, "no memory", nullptr};
  std::unique_ptr<RecordDb> db(new RecordDb(raw, path));
  const auto answer = [&](State state, std::string detail) {
    result.state = state;
    result.detail = OneLine(detail);
    if (state == State::kReady || state == State::kReadOnly) result.db = std::move(db);
    return std::move(result);
  };
  if (opened != SQLITE_OK) return answer(State::kUnusable, sqlite3_errmsg(raw));
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, options.busy_timeout_ms);
  // Until the file is known to be ours, closing must not checkpoint its WAL.
  sqlite3_db_config(raw, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);

  // One read transaction: another process may be creating the tables right now, and its schema must
  // be seen completely or not at all.
  int code = sqlite3_exec(raw, "BEGIN", nullptr, nullptr, nullptr);
  const auto tables = PragmaNumber(raw, "SELECT count(*) FROM sqlite_master", code);
  if (!tables) {
    return answer(MeansDamaged(code) ? State::kDamaged : State::kUnusable, sqlite3_errmsg(raw));
  }
  const auto version = PragmaNumber(raw, "PRAGMA user_version", code);
  const auto application = PragmaNumber(raw, "PRAGMA application_id", code);
  sqlite3_exec(raw, "COMMIT", nullptr, nullptr, nullptr);
  if (!version || !application) {
    return answer(MeansDamaged(code) ? State::kDamaged : State::kUnusable, sqlite3_errmsg(raw));
  }
  const bool fresh = *tables == 0 && *version == 0;
  if (!fresh && *application != kApplicationId)
    return answer(State::kForeign, "not a file of tuning records");
  if (*version > kSchema)
    return answer(State::kNewer, Format("schema {}; this version reads {}", *version, kSchema));
  if (!fresh && depth == Depth::kDeep) {
    if (const std::string finding = db->Check(); !finding.empty())
      return answer(State::kDamaged, finding);
  }
  sqlite3_db_config(raw, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  if (options.read_only) return answer(fresh ? State::kAbsent : State::kReadOnly, {});
  if (sqlite3_db_readonly(raw, "main") == 1)
    return answer(fresh ? State::kUnusable : State::kReadOnly, "file is write-protected");
  if (auto status = db->Setup(options); !status) {
    const int failed = sqlite3_extended_errcode(raw) & 0xff;
    const bool readable = !fresh && (failed == SQLITE_READONLY || failed == SQLITE_CANTOPEN ||
                                     failed == SQLITE_IOERR);
    return answer(readable ? State::kReadOnly : State::kUnusable, status.error().message);
  }
  return answer(State::kReady, {});
}

Status RecordDb::Setup(const Records::Options& options) {
  // WAL lets readers continue while one process writes. If it is refused, SQLite keeps its rollback
  // journal and says so; both are safe.
  if (!OnNetwork(path_)) {
    Statement wal(db_, "PRAGMA journal_mode=WAL");
    static_cast<void>(wal.Step());
  }
  // What Append has acknowledged survives even a power cut; tuning writes only a few rows a second.
  if (auto s = Exec("PRAGMA synchronous=FULL"); !s) return s;
  if (options.max_pages > 0) {
    if (auto s = Exec(Format("PRAGMA max_page_count={}", options.max_pages).c_str()); !s) return s;
  }
  int code = SQLITE_OK;
  if (PragmaNumber(db_, "PRAGMA user_version", code) == kSchema) return {};
  if (auto s = Exec("BEGIN IMMEDIATE"); !s) return s;
  Status status = Exec(kCreate);
  if (status) status = Exec(Format("PRAGMA application_id={}", kApplicationId).c_str());
  if (status) status = Exec(Format("PRAGMA user_version={}", kSchema).c_str());
  if (status) status = Exec("COMMIT");
  if (!status) static_cast<void>(Exec("ROLLBACK"));
  return status;
}

Result<std::string> RecordDb::MoveAside(const std::string& path, const Records::Options& options) {
  const RecoveryLock lock(path);
  if (Open(path, options, Depth::kDeep).state != State::kDamaged) return std::string();
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const std::string target = Format("{}.damaged-{}-{}", path, now.count(), getpid());
  // Move the journals first: one left behind would be replayed into the next file of that name.
  for (const char* suffix : {"-wal", "-shm", "-journal"}) {
    static_cast<void>(std::rename((path + suffix).c_str(), (target + suffix).c_str()));
  }
  if (std::rename(path.c_str(), target.c_str()) != 0) {
    return Fail(ErrorCode::kIo,
                Format("cannot move {} to {}: {}", path, target, std::strerror(errno)));
  }
  return target;
}

Status RecordDb::Append(std::span<const Record> records) {
  if (auto s = Exec("BEGIN IMMEDIATE"); !s) return s;
  const auto insert_all = [&]() -> Status {
    Statement insert(db_, kInsert);
    if (!insert.ok()) return Fail(Trouble("prepare"));
    for (const Record& r : records) {
      const std::string_view texts[] = {r.id,
                                        r.op,
                                        r.problem,
                                        r.scope.device,
                                        r.scope.libraries,
                                        MeasurePolicyName(r.scope.policy),
                                        r.kernel,
                                        r.fingerprint,
                                        r.spec,
                                        VerdictName(r.verdict),
                                        r.evidence};
      int column = 0;
      for (const std::string_view text : texts) insert.Bind(++column, text);
      insert.Bind(++column, r.samples);
      for (const double value : {r.median_us, r.low_us, r.high_us, r.predicted_us})
        insert.Bind(++column, value);
      insert.Bind(++column, std::int64_t{r.chosen});
      insert.Bind(++column, r.unix_ms);
      const std::string extra = StoredExtra(r);
      insert.Bind(++column, std::string_view(extra));
      if (insert.Step() != SQLITE_DONE) return Fail(Trouble("insert"));
      insert.Reset();
    }
    return {};
  };
  Status status = insert_all();
  if (status) status = Exec("COMMIT");
  if (!status && sqlite3_get_autocommit(db_) == 0) static_cast<void>(Exec("ROLLBACK"));
  return status;
}

namespace {

StoredRow StoredAt(const Statement& select) {
  StoredRow row;
  row.id = select.View(0);
  for (int i = 0; i < static_cast<int>(row.texts.size()); ++i)
    row.texts[static_cast<std::size_t>(i)] = select.View(1 + i);
  row.samples = select.Integer(11);
  for (int i = 0; i < static_cast<int>(row.times.size()); ++i)
    row.times[static_cast<std::size_t>(i)] = select.Real(12 + i);
  row.chosen = select.Integer(16);
  row.unix_ms = select.Integer(17);
  row.extra = select.View(18);
  return row;
}

// False if the row does not match its id.
bool ToRecord(const StoredRow& row, std::string& scratch, Record& r) {
  const auto policy = ParseMeasurePolicy(row.texts[4]);
  const auto verdict = ParseVerdict(row.texts[8]);
  if (!policy || !verdict || (row.chosen != 0 && row.chosen != 1) || !DigestMatches(row, scratch) ||
      !TakeStoredExtra(row.extra, r)) {
    return false;
  }
  r.id = row.id;
  r.op = row.texts[0], r.problem = row.texts[1];
  r.scope.device = row.texts[2], r.scope.libraries = row.texts[3], r.scope.policy = *policy;
  r.kernel = row.texts[5], r.fingerprint = row.texts[6], r.spec = row.texts[7];
  r.verdict = *verdict, r.evidence = row.texts[9];
  r.samples = row.samples;
  r.median_us = row.times[0], r.low_us = row.times[1], r.high_us = row.times[2],
  r.predicted_us = row.times[3];
  r.chosen = row.chosen != 0;
  r.unix_ms = row.unix_ms;
  return true;
}

}  // namespace

void RecordDb::Stopped(const char* doing, Loaded& result) const {
  result.damaged = MeansDamaged(sqlite3_extended_errcode(db_));
  result.trouble = OneLine(Trouble(doing).message);
}

RecordDb::Loaded RecordDb::Load(const Records::Filter& filter) const {
  Loaded result;
  Statement select(db_, kSelect);
  if (!select.ok()) {
    Stopped("read", result);
    return result;
  }
  select.Bind(1, filter.op);
  select.Bind(2, filter.problem);
  select.Bind(3, filter.device);
  std::string scratch;
  int code = select.Step();
  for (; code == SQLITE_ROW; code = select.Step()) {
    Record record;
    if (ToRecord(StoredAt(select), scratch, record)) {
      result.records.push_back(std::move(record));
    } else {
      ++result.corrupt;
    }
  }
  if (code != SQLITE_DONE) Stopped("read", result);
  return result;
}

RecordDb::Loaded RecordDb::LoadRows(std::span<const std::int64_t> rowids) const {
  Loaded result;
  Statement select(db_, kSelectRow);
  if (!select.ok() || !Exec("BEGIN")) {
    Stopped("read", result);
    return result;
  }
  result.records.reserve(rowids.size());
  std::string scratch;
  for (const std::int64_t rowid : rowids) {
    select.Bind(1, rowid);
    const int code = select.Step();
    if (code == SQLITE_ROW) {
      Record record;
      if (ToRecord(StoredAt(select), scratch, record)) {
        result.records.push_back(std::move(record));
      } else {
        ++result.corrupt;
      }
    } else if (code != SQLITE_DONE) {  // done: removed meanwhile
      Stopped("read", result);
      break;
    }
    select.Reset();
  }
  select.Reset();
  static_cast<void>(Exec("COMMIT"));
  return result;
}

RecordDb::Loaded RecordDb::Scan(std::string_view op, const RecordScope& scope, Columns columns,
                                const std::function<void(const Place&)>& visit) const {
  Loaded result;
  const bool with_extra = columns == Columns::kPlaceAndExtra;
  Statement scan(db_, with_extra ? kScanExtra : kScan);
  if (!scan.ok()) {
    Stopped("read", result);
    return result;
  }
  scan.Bind(1, op);
  scan.Bind(2, scope.device);
  scan.Bind(3, scope.libraries);
  int code = scan.Step();
  for (; code == SQLITE_ROW; code = scan.Step()) {
    Place place;
    place.rowid = scan.Integer(0);
    place.op = scan.View(1), place.problem = scan.View(2);
    place.policy = scan.View(3), place.verdict = scan.View(4);
    if (with_extra) place.extra = scan.View(5);
    visit(place);
  }
  if (code != SQLITE_DONE) Stopped("read", result);
  return result;
}

Result<int> RecordDb::Remove(std::span<const std::string> ids) {
  if (auto s = Exec("BEGIN IMMEDIATE"); !s) return Fail(std::move(s.error()));
  int removed = 0;
  const auto remove_all = [&]() -> Status {
    Statement remove(db_, "DELETE FROM measurement WHERE id = ?1");
    for (const std::string& id : ids) {
      remove.Bind(1, id);
      if (remove.Step() != SQLITE_DONE) return Fail(Trouble("delete"));
      removed += sqlite3_changes(db_);
      remove.Reset();
    }
    return {};
  };
  Status status = remove_all();
  if (status) status = Exec("COMMIT");
  if (!status) {
    if (sqlite3_get_autocommit(db_) == 0) static_cast<void>(Exec("ROLLBACK"));
    return Fail(std::move(status.error()));
  }
  return removed;
}

}  // namespace tilewright
