#include "tilewright/records.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/atomic_file.h"
#include "core/paths.h"
#include "core/text.h"
#include "engine/record_db.h"
#include "engine/record_text.h"
#include "engine/sealed_json.h"

namespace tilewright {
namespace {

constexpr std::string_view kFormat = "tilewright.records";

std::int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool Passes(const Record& record, const Records::Filter& filter) {
  return (filter.op.empty() || record.op == filter.op) &&
         (filter.problem.empty() || record.problem == filter.problem) &&
         (filter.device.empty() || record.scope.device == filter.device);
}

}  // namespace

struct Records::Impl {
  std::string path;
  Options options;
  mutable std::mutex mutex;  // guards all below
  mutable std::unique_ptr<RecordDb> db;
  bool writable = false;
  pid_t owner = 0;
  std::vector<Record> memory;  // what the file would not take
  mutable std::vector<std::string> warnings;
  mutable std::set<std::string> warned;
  mutable int corrupt = 0;
  std::int64_t appended_ms = 0;  // by the last Append

  void Warn(const std::string& kind, std::string text) const {
    if (warned.insert(kind).second) warnings.push_back(std::move(text));
  }

  void Open() {
    owner = getpid();
    writable = false;
    if (path.empty()) return;
    if (const auto slash = path.rfind('/');
        !options.read_only && slash != std::string::npos && slash > 0) {
      if (const auto made = MakeDirs(path.substr(0, slash)); !made) {
        Warn("folder", made.error().message + "; tuning records of this run are kept in memory");
        return;
      }
    }
    RecordDb::Opened opened = RecordDb::Open(path, options);
    if (opened.state == RecordDb::State::kDamaged) opened = Recover(std::move(opened));
    Adopt(std::move(opened));
  }

  RecordDb::Opened Recover(RecordDb::Opened opened) {
    if (options.read_only) return opened;
    const auto moved = RecordDb::MoveAside(path, options);
    if (!moved) {
      opened.detail += "; " + moved.error().message;
      return opened;
    }
    if (!moved->empty()) {
      Warn("damaged", Format("{} is damaged ({}): moved to {}, starting without tuning records",
                             path, opened.detail, *moved));
    }
    return RecordDb::Open(path, options);
  }

  void Adopt(RecordDb::Opened opened) {
    using State = RecordDb::State;
    db = std::move(opened.db);
    switch (opened.state) {
      case State::kReady:
        writable = true;
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
        Warn("newer", Format("{} is of a newer version ({}): left as it is, tuning records are "
                             "neither read nor written",
                             path, opened.detail));
        return;
      case State::kForeign:
        Warn("foreign",
             Format("{} is {}: left as it is, tuning records of this run are kept in memory", path,
                    opened.detail));
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

  // SQLite's locks belong to the process that took them: a child leaves the parent's connection
  // alone and opens its own.
  RecordDb* Db() {
    if (owner != getpid()) {
      if (db != nullptr) {
        db->Abandon();
        db.reset();
      }
      Open();
    }
    return db.get();
  }

  std::vector<Record> Load(const Filter& filter) {
    std::vector<Record> records;
    if (const RecordDb* open = Db()) {
      RecordDb::Loaded loaded = open->Load(filter);
      records = std::move(loaded.records);
      if (loaded.corrupt > 0) {
        corrupt = std::max(corrupt, loaded.corrupt);
        Warn("rows",
             Format("{}: {} records fail their checksum and are not used", path, loaded.corrupt));
      }
      if (!loaded.trouble.empty()) {
        Warn("read", Format("{}; {} records could be read", loaded.trouble, records.size()));
      }
    }
    for (const Record& record : memory) {
      if (Passes(record, filter)) records.push_back(record);
    }
    std::sort(records.begin(), records.end(),
              [](const Record& x, const Record& y) { return x.id < y.id; });
    records.erase(std::unique(records.begin(), records.end(),
                              [](const Record& x, const Record& y) { return x.id == y.id; }),
                  records.end());
    return records;
  }

  Status Store(std::vector<Record> records) {
    if (RecordDb* open = Db(); open != nullptr && writable) {
      Status stored = open->Append(records);
      if (stored) return {};
      Warn("write",
           stored.error().message + "; these records are kept in memory, earlier ones are intact");
      memory.insert(memory.end(), std::make_move_iterator(records.begin()),
                    std::make_move_iterator(records.end()));
      return stored;
    }
    memory.insert(memory.end(), std::make_move_iterator(records.begin()),
                  std::make_move_iterator(records.end()));
    return {};
  }
};

Records::Records(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Records::Records(Records&&) noexcept = default;
Records& Records::operator=(Records&&) noexcept = default;
Records::~Records() {
  if (impl_ != nullptr && impl_->db != nullptr && impl_->owner != getpid()) impl_->db->Abandon();
}

Result<std::string> Records::DefaultPath() {
  const auto folder = CacheDir();
  if (!folder) return Fail(folder.error());
  return *folder + "/records.sqlite";
}

Records Records::Open(const std::string& path, const Options& options) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->options = options;
  impl->Open();
  return Records(std::move(impl));
}

Status Records::Append(std::span<const Record> records) {
  if (records.empty()) return {};
  std::vector<Record> rows(records.begin(), records.end());
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  // Sessions are told apart, and the later one from the earlier, by their time alone.
  impl_->appended_ms = std::max(NowMs(), impl_->appended_ms + 1);
  for (Record& row : rows) {
    if (row.unix_ms == 0) row.unix_ms = impl_->appended_ms;
    Normalise(row);
    row.id = RecordId(row);
  }
  return impl_->Store(std::move(rows));
}

std::vector<Record> Records::Load(const Filter& filter) const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->Load(filter);
}

int Records::Export(std::ostream& out) const {
  const std::vector<Record> records = Load();
  try {
    out << Seal(nlohmann::json{{"format", kFormat}, {"schema", 1}}) << '\n';
    for (const Record& record : records) out << RecordLine(record) << '\n';
    out.flush();
  } catch (...) {  // a stream with exceptions switched on: the caller sees -1 either way
    return -1;
  }
  return out ? static_cast<int>(records.size()) : -1;
}

Result<int> Records::ExportFile(const std::string& path) const {
  std::ostringstream lines;
  const int count = Export(lines);
  Status written = WriteFileAtomic(path, lines.view(), AtomicFile::Special::kWriteDirectly);
  if (!written) return Fail(written.error());
  return count;
}

Result<Records::ImportResult> Records::Import(std::istream& in) {
  ImportResult result;
  std::set<std::string> known;
  for (const Record& record : Load()) known.insert(record.id);
  std::vector<Record> fresh;
  try {
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.empty()) continue;
      const auto object = Unseal(line);
      if (object && object->contains("format")) continue;
      auto record = object ? ParseRecord(*object) : std::nullopt;
      if (!record) {
        if (++result.corrupt == 1)
          result.first_trouble = Format("line {}: not a record, or its checksum fails", number);
      } else if (!known.insert(record->id).second) {
        ++result.known;
      } else {
        fresh.push_back(std::move(*record));
      }
    }
  } catch (...) {  // a stream with exceptions switched on: what was read counts
    if (result.first_trouble.empty()) result.first_trouble = "reading stopped early";
  }
  result.added = static_cast<int>(fresh.size());
  if (fresh.empty()) return result;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  if (auto stored = impl_->Store(std::move(fresh)); !stored) return Fail(std::move(stored.error()));
  return result;
}

Result<int> Records::Remove(std::span<const std::string> drop) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  const std::set<std::string, std::less<>> ids(drop.begin(), drop.end());
  int removed = static_cast<int>(
      std::erase_if(impl_->memory, [&ids](const Record& row) { return ids.contains(row.id); }));
  if (RecordDb* open = impl_->Db(); open != nullptr && impl_->writable) {
    auto from_file = open->Remove(drop);
    if (!from_file) return from_file;
    removed += *from_file;
  }
  return removed;
}

Records::Stat Records::GetStat() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  Stat stat;
  std::set<std::string> problems;
  for (const Record& record : impl_->Load({})) {
    problems.insert(record.op + " " + record.problem);
    ++(record.verdict == Verdict::kOk ? stat.measurements : stat.quarantined);
  }
  stat.problems = static_cast<std::int64_t>(problems.size());
  stat.corrupt = impl_->corrupt;
  stat.persistent = impl_->writable;
  stat.path = impl_->path;
  return stat;
}

std::vector<std::string> Records::warnings() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->warnings;
}

}  // namespace tilewright
