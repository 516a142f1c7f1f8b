#include "tilewright/records.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/atomic_file.h"
#include "core/hash.h"
#include "core/paths.h"
#include "core/text.h"
#include "engine/record_text.h"
#include "engine/records_impl.h"
#include "engine/sealed_json.h"

namespace tilewright {
namespace {

constexpr std::string_view kFormat = "tilewright.records";

}  // namespace

Records::Records(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Records::Records(Records&&) noexcept = default;
Records& Records::operator=(Records&&) noexcept = default;
Records::~Records() = default;

Result<std::string> Records::DefaultPath() {
  const auto folder = CacheDir();
  if (!folder) return Fail(folder.error());
  return *folder + "/records.sqlite";
}

Records Records::Open(const std::string& path, const Options& options) {
  return Records(std::make_unique<Impl>(path, options));
}

Status Records::Append(std::span<const Record> records) {
  if (records.empty()) return {};
  std::vector<Record> rows(records.begin(), records.end());
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  for (Record& row : rows) Normalise(row);
  impl_->Stamp(rows);
  for (Record& row : rows) row.id = RecordId(row);
  return impl_->Store(std::move(rows));
}

std::vector<Record> Records::Load(const Filter& filter) const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->Load(filter);
}

Records::Index::Index() = default;
Records::Index::Index(Index&&) noexcept = default;
Records::Index& Records::Index::operator=(Index&&) noexcept = default;
Records::Index::~Index() = default;
bool Records::Index::Has(std::string_view op) const {
  return rows_ != nullptr && rows_->ops.contains(op);
}

Records::Index Records::MakeIndex(std::string_view op, const RecordScope& scope,
                                  GroupOf group) const {
  Index index;
  index.rows_ = std::make_unique<Index::Rows>();
  Index::Rows& rows = *index.rows_;
  rows.group_of = std::move(group), rows.op = op, rows.scope = scope;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  for (const Record& record : impl_->memory) rows.ops.insert(record.op);
  const RecordDb* db = impl_->Db();
  if (db == nullptr) return index;
  const std::string* last = nullptr;  // neighbours are mostly of one operation
  const std::string_view policy = MeasurePolicyName(scope.policy), ok = VerdictName(Verdict::kOk);
  impl_->Account(db->Scan(op, scope, RecordDb::Columns::kPlace, [&](const RecordDb::Place& place) {
    if (last == nullptr || *last != place.op) last = &*rows.ops.emplace(place.op).first;
    if (place.verdict != ok) {
      rows.failures.push_back(place.rowid);
    } else if (place.policy == policy) {
      rows.groups.push_back(
          {rows.group_of(place.op, place.problem), place.rowid, Hash64(place.problem)});
    }
  }));
  std::sort(rows.groups.begin(), rows.groups.end());
  return index;
}

std::vector<Record> Records::LoadGroup(const Index& index, std::uint64_t group,
                                       std::string_view problem) const {
  if (index.rows_ == nullptr) return {};
  const Index::Rows& rows = *index.rows_;
  const auto belongs = [&](const Record& record) {
    return rows.Covers(record) && record.scope == rows.scope && record.verdict == Verdict::kOk &&
           (problem.empty() || record.problem == problem) &&
           rows.group_of(record.op, record.problem) == group;
  };
  std::vector<std::int64_t> rowids;
  const std::uint64_t wanted = Hash64(problem);
  for (auto at = std::lower_bound(rows.groups.begin(), rows.groups.end(),
                                  Index::Rows::Place{group, INT64_MIN, 0});
       at != rows.groups.end() && at->group == group; ++at) {
    if (problem.empty() || at->problem == wanted) rowids.push_back(at->rowid);
  }
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  std::vector<Record> records;
  if (!rowids.empty()) records = impl_->LoadRows(rowids);
  // A row may have been removed, and its rowid reused, since the index was made.
  std::erase_if(records, [&](const Record& record) { return !belongs(record); });
  std::copy_if(impl_->memory.begin(), impl_->memory.end(), std::back_inserter(records), belongs);
  SortById(records);
  return records;
}

std::vector<Record> Records::LoadFailures(const Index& index) const {
  if (index.rows_ == nullptr) return {};
  const Index::Rows& rows = *index.rows_;
  const auto belongs = [&](const Record& record) {
    return rows.Covers(record) && record.scope.device == rows.scope.device &&
           record.scope.libraries == rows.scope.libraries && record.verdict != Verdict::kOk;
  };
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  std::vector<Record> records;
  if (!rows.failures.empty()) records = impl_->LoadRows(rows.failures);
  std::erase_if(records, [&](const Record& record) { return !belongs(record); });
  std::copy_if(impl_->memory.begin(), impl_->memory.end(), std::back_inserter(records), belongs);
  SortById(records);
  return records;
}

int Records::Export(std::ostream& out) const {
  const std::vector<Record> records = Load();
  try {
    out << Seal(nlohmann::json{{"format", kFormat}, {"schema", 1}}) << '\n';
    for (const Record& record : records) out << RecordLine(record) << '\n';
    out.flush();
  } catch (...) {  // a stream with exceptions enabled: the caller sees -1 either way
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
  } catch (...) {  // a stream with exceptions enabled: keep what was read
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
  if (RecordDb* db = impl_->WritableDb()) {
    auto from_file = db->Remove(drop);
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
  stat.persistent = impl_->writable();
  stat.path = impl_->path;
  return stat;
}

bool Records::persistent() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->writable();
}

std::vector<std::string> Records::warnings() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->warnings;
}

}  // namespace tilewright
