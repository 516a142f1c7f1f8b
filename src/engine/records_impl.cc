#include "engine/records_impl.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "core/paths.h"
#include "core/text.h"
#include "engine/record_text.h"

namespace tilewright {
namespace {

std::int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string NewSession() {
  std::random_device random;
  return Format("{:08x}{:08x}", random(), random());
}

bool Passes(const Record& record, const Records::Filter& filter) {
  return (filter.op.empty() || record.op == filter.op) &&
         (filter.problem.empty() || record.problem == filter.problem) &&
         (filter.device.empty() || record.scope.device == filter.device);
}

using ScopedProblem = std::tuple<std::string, std::string, std::string, std::string, MeasurePolicy>;
ScopedProblem ProblemOf(const Record& r) {
  return {r.op, r.problem, r.scope.device, r.scope.libraries, r.scope.policy};
}

}  // namespace

// Sorts pointers, since moving a record moves half a kilobyte.
void SortById(std::vector<Record>& records) {
  std::vector<std::size_t> order(records.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t x, std::size_t y) { return records[x].id < records[y].id; });
  std::vector<Record> sorted;
  sorted.reserve(records.size());
  for (const std::size_t at : order) {
    if (sorted.empty() || sorted.back().id != records[at].id)
      sorted.push_back(std::move(records[at]));
  }
  records = std::move(sorted);
}

Records::Impl::Impl(std::string file, const Options& given)
    : path(std::move(file)), options(given), sentry_(mutex, &CloseForFork, this) {
  const std::lock_guard<std::mutex> lock(mutex);
  Open(RecordDb::Depth::kShallow);
}

Records::Impl::~Impl() {
  if (db_ != nullptr && owner_ != getpid()) db_->Abandon();
}

void Records::Impl::CloseForFork(void* self) {
  auto& impl = *static_cast<Impl*>(self);
  if (impl.db_ == nullptr || impl.owner_ != getpid()) return;
  impl.db_.reset();
  impl.closed_for_fork_ = true;
}

void Records::Impl::Warn(const std::string& kind, std::string text) {
  if (warned_.insert(kind).second) warnings.push_back(std::move(text));
}

void Records::Impl::Open(RecordDb::Depth depth) {
  owner_ = getpid();
  writable_ = false;
  closed_for_fork_ = false;
  if (path.empty()) return;
  if (const auto slash = path.rfind('/');
      !options.read_only && slash != std::string::npos && slash > 0) {
    if (const auto made = MakeDirs(path.substr(0, slash)); !made) {
      Warn("folder", made.error().message + "; tuning records of this run are kept in memory");
      return;
    }
  }
  RecordDb::Opened opened = RecordDb::Open(path, options, depth);
  if (opened.state == RecordDb::State::kDamaged) opened = Recover(std::move(opened));
  Adopt(std::move(opened));
}

RecordDb::Opened Records::Impl::Recover(RecordDb::Opened opened) {
  if (options.read_only) return opened;
  const auto moved = RecordDb::MoveAside(path, options);
  if (!moved) {
    opened.detail += "; " + moved.error().message;
    return opened;
  }
  if (!moved->empty()) {
    Warn("damaged", Format("{} is damaged ({}): moved to {}, starting without tuning records", path,
                           opened.detail, *moved));
  }
  return RecordDb::Open(path, options, RecordDb::Depth::kShallow);
}

void Records::Impl::Adopt(RecordDb::Opened opened) {
  using State = RecordDb::State;
  db_ = std::move(opened.db);
  switch (opened.state) {
    case State::kReady:
      writable_ = true;
      return;
    case State::kAbsent:
      return;
    case State::kReadOnly:
      if (!options.read_only) {
        Warn("read-only",
             Format("{} cannot be written ({}): tuning records of this run are kept in memory",
                    path, opened.detail));
      }
      return;
    case State::kNewer:
      Warn("newer", Format("{} is of a newer version ({}): it is not changed, and tuning records "
                           "are neither read nor written",
                           path, opened.detail));
      return;
    case State::kForeign:
      Warn("foreign",
           Format("{} is {}: it is not changed, and tuning records of this run are kept in memory",
                  path, opened.detail));
      return;
    case State::kDamaged:
      Warn("damaged",
           Format("{} is damaged ({}): tuning records are not read", path, opened.detail));
      return;
    case State::kUnusable:
      Warn("unusable",
           Format("{} cannot be used ({}): tuning records of this run are kept in memory", path,
                  opened.detail));
      return;
  }
}

void Records::Impl::Replace(const std::string& detail) {
  if (options.read_only || !writable_) return;
  db_.reset();
  writable_ = false;
  Adopt(Recover({RecordDb::State::kDamaged, detail, nullptr}));
}

RecordDb* Records::Impl::Db() {
  if (closed_for_fork_) Open(RecordDb::Depth::kShallow);
  if (owner_ != getpid()) {
    // Not forked through the C library, or CloseForFork would have run. The locks are the parent's,
    // but SQLite believes that they are ours.
    if (db_ != nullptr) {
      db_->Abandon();
      db_.reset();
      Warn("clone",
           Format("{} was open when this process was cloned without fork(): tuning records "
                  "are kept in memory",
                  path));
    }
    writable_ = false;
    owner_ = getpid();
  }
  return db_.get();
}

bool Records::Impl::writable() {
  static_cast<void>(Db());
  return writable_;
}

RecordDb* Records::Impl::WritableDb() {
  RecordDb* db = Db();
  if (db == nullptr || !writable_) return nullptr;
  if (!std::exchange(checked_, true)) {
    if (const std::string finding = db->Check(); !finding.empty()) Replace(finding);
  }
  return writable_ ? db_.get() : nullptr;
}

std::vector<Record> Records::Impl::Account(RecordDb::Loaded loaded) {
  if (loaded.corrupt > 0) {
    corrupt = std::max(corrupt, loaded.corrupt);
    Warn("rows",
         Format("{}: {} records fail their checksum and are not used", path, loaded.corrupt));
  }
  if (loaded.damaged) {
    Replace(loaded.trouble);
  } else if (!loaded.trouble.empty()) {
    Warn("read", Format("{}; {} records could be read", loaded.trouble, loaded.records.size()));
  }
  return std::move(loaded.records);
}

std::vector<Record> Records::Impl::Load(const Filter& filter) {
  std::vector<Record> records;
  if (const RecordDb* db = Db()) records = Account(db->Load(filter));
  for (const Record& record : memory) {
    if (Passes(record, filter)) records.push_back(record);
  }
  SortById(records);
  return records;
}

std::vector<Record> Records::Impl::LoadRows(std::span<const std::int64_t> rowids) {
  const RecordDb* db = Db();
  return db != nullptr ? Account(db->LoadRows(rowids)) : std::vector<Record>();
}

void Records::Impl::Stamp(std::vector<Record>& rows) {
  std::map<ScopedProblem, std::int64_t> latest;
  std::set<std::tuple<std::string, std::string, std::string>> scopes;  // op, device, libraries
  appended_ms_ = std::max(NowMs(), appended_ms_ + 1);
  const std::string session = NewSession();
  for (Record& row : rows) {
    if (row.unix_ms != 0) continue;
    row.unix_ms = appended_ms_;
    if (row.session.empty()) row.session = session;
    if (row.generation != 0) continue;
    latest.try_emplace(ProblemOf(row), 0);
    scopes.emplace(row.op, row.scope.device, row.scope.libraries);
    row.generation = -1;  // to be filled in below
  }
  const auto see = [&latest](const ScopedProblem& problem, std::int64_t generation) {
    const auto at = latest.find(problem);
    if (at != latest.end()) at->second = std::max(at->second, generation);
  };
  for (const Record& row : memory) see(ProblemOf(row), row.generation);
  for (const auto& [op, device, libraries] : scopes) {
    const RecordDb* db = Db();
    if (db == nullptr) break;
    const RecordScope scope{device, libraries, MeasurePolicy::kCold};
    // If this meets damage, so does the write, which reports it.
    static_cast<void>(db->Scan(
        op, scope, RecordDb::Columns::kPlaceAndExtra, [&, &op = op](const RecordDb::Place& place) {
          Record known;
          const auto policy = ParseMeasurePolicy(place.policy);
          if (!policy || !TakeStoredExtra(place.extra, known)) return;
          see({op, std::string(place.problem), scope.device, scope.libraries, *policy},
              known.generation);
        }));
  }
  for (Record& row : rows) {
    if (row.generation < 0)
      row.generation = std::min(latest.at(ProblemOf(row)) + 1, kMaxGeneration);
  }
}

Status Records::Impl::Store(std::vector<Record> records) {
  Status stored;
  if (RecordDb* db = WritableDb()) {
    stored = db->Append(records);
    if (stored) return {};
    Warn("write",
         stored.error().message + "; these records are kept in memory; earlier ones are intact");
  }
  memory.insert(memory.end(), std::make_move_iterator(records.begin()),
                std::make_move_iterator(records.end()));
  return stored;
}

}  // namespace tilewright
