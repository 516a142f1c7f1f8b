#pragma once

#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/hash.h"
#include "engine/cache/build_cache_template.h"
#include "engine/cache/cache_line.h"
#include "engine/cache/group_table.h"
#include "tilewright/dispatch_cache.h"

namespace tilewright {

inline bool IsTime(float us) { return std::isfinite(us) && us > 0; }

template <class Op>
struct DispatchCacheOf<Op>::Impl {
  std::string device;
  MeasurePolicy policy = MeasurePolicy::kCold;
  std::unordered_map<std::string_view, KernelType*> by_name;  // views into the kernels' own names
  GroupTable<Op> table;
  std::size_t entries = 0;
  // Records of a group, or of one problem of it; none: all is here.
  std::function<std::vector<Record>(const Desc&, bool whole_group)> read;
  std::function<DispatchCacheOf(std::vector<Record>)> build;
  Quarantine quarantine;
  mutable std::shared_mutex reading;  // only with `read`: guards table and entries
  std::set<std::string> aside;        // sealed lines that have no meaning here; exported again
  ImportReport report;

  bool Owns(const KernelType* kernel) const {
    if (kernel == nullptr) return false;
    const auto found = by_name.find(kernel->name());
    return found != by_name.end() && found->second == kernel;
  }

  // Calls `use` with the group of `desc`, or nullptr if there is none, reading it first if needed.
  template <class Use>
  [[gnu::always_inline]] auto WithGroup(const Desc& desc, const Use& use) {
    return read ? WithReadGroup(desc, use) : use(table.Find(desc));
  }
  template <class Use>
  [[gnu::noinline]] auto WithReadGroup(const Desc& desc, const Use& use) {
    {
      const std::shared_lock lock(reading);
      if (const ProblemGroup<Op>* group = table.Find(desc)) return use(group);
    }
    const std::unique_lock lock(reading);
    if (table.Find(desc) == nullptr) Read(desc);
    return use(table.Find(desc));
  }
  // A group without records is remembered as an empty one.
  void Read(const Desc& desc) {
    table.FindOrAdd(desc);
    build(read(desc, true)).ForEach([&](const Desc& found, const Spec& spec) {
      if (GroupTable<Op>::KeyFor(found) == GroupTable<Op>::KeyFor(desc)) Insert(found, spec, {});
    });
  }

  enum class Inserted {
    kNew,       ///< there was no entry
    kReplaced,  ///< the old entry had less evidence
    kSame,      ///< it was there already
    kEqual,     ///< as good as the old entry; one of the two is kept
    kWorse
  };
  Inserted Insert(const Desc& desc, const Spec& spec, std::string extra) {
    const std::int32_t batch = BatchOf(desc);
    ProblemGroup<Op>& group = table.FindOrAdd(desc);
    const std::size_t i = group.LowerBound(batch);
    if (i == group.batches.size() || group.batches[i] != batch) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      group.batches.insert(group.batches.begin() + at, batch);
      group.specs.Insert(i, spec);
      group.extra.insert(group.extra.begin() + at, std::move(extra));
      ++entries;
      return Inserted::kNew;
    }
    const Spec standing = group.specs[i];
    const auto evidence = [](const Spec& s) {
      return IsTime(s.measured_us) ? s.measured_us : std::numeric_limits<float>::infinity();
    };
    if (evidence(spec) > evidence(standing)) return Inserted::kWorse;
    const bool better = evidence(spec) < evidence(standing);
    // Everything that a line holds is compared, so that the result does not depend on their order.
    const auto rank = [](const Spec& s, const std::string& more) {
      return std::tuple(s.kernel->name(), s.swizzle, s.splits, s.config, s.predicted_us,
                        s.provisional, std::string_view(more));
    };
    const auto mine = rank(spec, extra), theirs = rank(standing, group.extra[i]);
    if (!better && mine == theirs) return Inserted::kSame;
    if (better || mine < theirs) {
      group.specs.Set(i, spec);
      group.extra[i] = std::move(extra);
    }
    return better ? Inserted::kReplaced : Inserted::kEqual;
  }

  // Removes entry `i` of `group`.
  static void EraseAt(ProblemGroup<Op>& group, std::size_t i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    group.batches.erase(group.batches.begin() + at);
    group.specs.Erase(i);
    group.extra.erase(group.extra.begin() + at);
  }

  // For each problem (by key), the lines of the current import whose entry is in the cache: they
  // count as worse once a faster one replaces it.
  using Standing = std::map<std::string, std::vector<int>>;

  ImportedLine Take(const std::string& text, int number, Standing& standing, ImportTally& tally) {
    CacheLine line;
    const CacheLineKind kind = ReadCacheLine(text, line);
    if (kind == CacheLineKind::kHeader) return ImportedLine::kHeader;
    if (kind == CacheLineKind::kCorrupt) return ImportedLine::kCorrupt;
    const auto keep_aside = [&](ImportedLine as) {
      aside.insert(Resealed(text));
      return as;
    };
    if (kind == CacheLineKind::kLater || line.op != Op::kName)
      return keep_aside(ImportedLine::kForeign);
    const auto kernel = by_name.find(line.kernel);
    if (kernel == by_name.end()) return keep_aside(ImportedLine::kUnknownKernel);
    if (line.device != device || line.policy != MeasurePolicyName(policy))
      return keep_aside(ImportedLine::kForeign);
    if (line.fingerprint != kernel->second->info().fingerprint)
      return keep_aside(ImportedLine::kStale);
    const auto desc = OpTraits<Op>::ParseKey(line.problem);
    if (!desc || !Validate(*desc)) return ImportedLine::kCorrupt;
    if (kernel->second->IsFeasible(*desc)) return keep_aside(ImportedLine::kInfeasible);
    auto spec = ParseSpec(line.spec, kernel->second);
    if (!spec) return keep_aside(ImportedLine::kUnknownLaunch);
    spec->measured_us = static_cast<float>(line.measured_us);
    spec->predicted_us = static_cast<float>(line.predicted_us);
    if (!IsTime(spec->predicted_us)) spec->predicted_us = 0;
    spec->provisional = line.provisional;

    const Inserted inserted = Insert(*desc, *spec, std::move(line.extra));
    if (inserted == Inserted::kWorse) return ImportedLine::kWorse;
    std::vector<int>& lines = standing[KeyOf(*desc)];
    if (inserted == Inserted::kReplaced) {
      for (const int earlier : lines) tally.Overtaken(earlier);
      lines.clear();
    }
    lines.push_back(number);
    return ImportedLine::kResolved;
  }

  std::string EntryLine(const Desc& desc, const Spec& spec, const std::string& extra) const {
    return TextOf({.op = std::string(Op::kName),
                   .problem = KeyOf(desc),
                   .device = device,
                   .policy = std::string(MeasurePolicyName(policy)),
                   .kernel = spec.kernel->info().name,
                   .fingerprint = spec.kernel->info().fingerprint,
                   .spec = SpecText(spec),
                   .measured_us = IsTime(spec.measured_us) ? spec.measured_us : 0.0f,
                   .predicted_us = IsTime(spec.predicted_us) ? spec.predicted_us : 0.0f,
                   .provisional = spec.provisional,
                   .extra = extra});
  }

  // Whether an entry may stand; the same limits for what is inserted and what is read.
  bool MayStand(const Desc& desc, const Spec& spec) const {
    if (!Owns(spec.kernel) || !(spec.measured_us >= 0) || !std::isfinite(spec.measured_us))
      return false;
    const auto again = ParseSpec(SpecText(spec), spec.kernel);
    return again && *again == spec && Validate(desc) && !spec.kernel->IsFeasible(desc);
  }
};

template <class Op>
DispatchCacheOf<Op>::DispatchCacheOf(std::vector<KernelType*> kernels, std::string device,
                                     MeasurePolicy policy)
    : impl_(std::make_unique<Impl>()) {
  impl_->device = std::move(device);
  impl_->policy = policy;
  for (KernelType* kernel : kernels) {
    if (kernel != nullptr) impl_->by_name.try_emplace(kernel->name(), kernel);
  }
}
template <class Op>
DispatchCacheOf<Op>::~DispatchCacheOf() = default;
template <class Op>
DispatchCacheOf<Op>::DispatchCacheOf(DispatchCacheOf&&) noexcept = default;
template <class Op>
DispatchCacheOf<Op>& DispatchCacheOf<Op>::operator=(DispatchCacheOf&&) noexcept = default;

template <class Op>
auto DispatchCacheOf<Op>::Find(const Desc& desc) const -> std::optional<Spec> {
  return impl_->WithGroup(desc, [&](const ProblemGroup<Op>* group) -> std::optional<Spec> {
    std::optional<Spec> found;
    if (group == nullptr) return found;
    const std::int32_t batch = BatchOf(desc);
    const std::size_t i = group->LowerBound(batch);
    if (i < group->batches.size() && group->batches[i] == batch)
      group->specs.Fill(found.emplace(), i);
    return found;
  });
}

/// Entry `i` of a group as an answer for `desc`: exact, or feasible there.
template <class Op>
[[gnu::always_inline]] inline bool Answers(const ProblemGroup<Op>& group, std::size_t i,
                                           const typename Op::Desc& desc) {
  return group.batches[i] == BatchOf(desc) || !group.specs.KernelAt(i)->IsFeasible(desc);
}
template <class Op>
[[gnu::always_inline]] inline std::optional<std::size_t> AtOrAbove(const ProblemGroup<Op>* group,
                                                                   const typename Op::Desc& desc) {
  if (group == nullptr) return std::nullopt;
  const std::size_t i = group->LowerBound(BatchOf(desc));
  if (i == group->batches.size() || !Answers(*group, i, desc)) return std::nullopt;
  return i;
}
template <class Op>
[[gnu::always_inline]] inline std::optional<std::size_t> AtOrBelow(const ProblemGroup<Op>* group,
                                                                   const typename Op::Desc& desc) {
  if (group == nullptr) return std::nullopt;
  const std::int32_t batch = BatchOf(desc);
  std::size_t i = group->LowerBound(batch);
  if (i == group->batches.size() || group->batches[i] != batch) {
    if (i == 0) return std::nullopt;
    --i;
  }
  if (!Answers(*group, i, desc)) return std::nullopt;
  return i;
}

template <class Op>
auto DispatchCacheOf<Op>::LowerBoundHit(const Desc& desc) const -> std::optional<Hit> {
  return impl_->WithGroup(desc, [&](const ProblemGroup<Op>* group) -> std::optional<Hit> {
    const auto i = AtOrAbove(group, desc);
    if (!i) return std::nullopt;
    return Hit{group->specs[*i], group->batches[*i]};
  });
}

template <class Op>
auto DispatchCacheOf<Op>::FloorBoundHit(const Desc& desc) const -> std::optional<Hit> {
  return impl_->WithGroup(desc, [&](const ProblemGroup<Op>* group) -> std::optional<Hit> {
    const auto i = AtOrBelow(group, desc);
    if (!i) return std::nullopt;
    return Hit{group->specs[*i], group->batches[*i]};
  });
}

template <class Op>
auto DispatchCacheOf<Op>::LowerBound(const Desc& desc) const -> std::optional<Spec> {
  return impl_->WithGroup(desc, [&](const ProblemGroup<Op>* group) -> std::optional<Spec> {
    std::optional<Spec> found;
    if (const auto i = AtOrAbove(group, desc)) group->specs.Fill(found.emplace(), *i);
    return found;
  });
}

template <class Op>
auto DispatchCacheOf<Op>::FloorBound(const Desc& desc) const -> std::optional<Spec> {
  return impl_->WithGroup(desc, [&](const ProblemGroup<Op>* group) -> std::optional<Spec> {
    std::optional<Spec> found;
    if (const auto i = AtOrBelow(group, desc)) group->specs.Fill(found.emplace(), *i);
    return found;
  });
}

template <class Op>
bool DispatchCacheOf<Op>::Insert(const Desc& desc, const Spec& spec) {
  if (!impl_->MayStand(desc, spec)) return false;
  Spec entry = spec;
  if (!IsTime(entry.predicted_us)) entry.predicted_us = 0;
  // Unlike an import, where order does not matter, an insertion is later than what is there.
  if (const auto standing = Find(desc);
      standing && (!IsTime(spec.measured_us) ||
                   (IsTime(standing->measured_us) && standing->measured_us <= spec.measured_us))) {
    return false;
  }
  impl_->Insert(desc, entry, {});
  return true;
}

template <class Op>
bool DispatchCacheOf<Op>::Erase(const Desc& desc) {
  ProblemGroup<Op>* group = impl_->table.FindMutable(desc);
  if (group == nullptr) return false;
  const std::size_t i = group->LowerBound(BatchOf(desc));
  if (i == group->batches.size() || group->batches[i] != BatchOf(desc)) return false;
  Impl::EraseAt(*group, i);
  --impl_->entries;
  return true;
}

template <class Op>
std::uint64_t DispatchCacheOf<Op>::GroupOf(std::string_view problem) {
  return Hash64(Op::kName, OpTraits<Op>::GroupOfKey(problem));
}

template <class Op>
DispatchCacheOf<Op> DispatchCacheOf<Op>::Over(const Records& records,
                                              const OpRegistry<Op>& registry,
                                              const RecordScope& scope) {
  const auto index = std::make_shared<const Records::Index>(records.MakeIndex(
      Op::kName, scope, [](std::string_view, std::string_view key) { return GroupOf(key); }));
  return Over(records, index, records.LoadFailures(*index), registry, scope);
}

template <class Op>
DispatchCacheOf<Op> DispatchCacheOf<Op>::Over(const Records& records,
                                              std::shared_ptr<const Records::Index> index,
                                              std::span<const Record> failures,
                                              const OpRegistry<Op>& registry,
                                              const RecordScope& scope) {
  const auto kernels = registry.kernels();
  DispatchCacheOf cache({kernels.begin(), kernels.end()}, scope.device, scope.policy);
  AddToQuarantine<Op>(cache.impl_->quarantine, failures, scope);
  cache.impl_->read = [&records, index](const Desc& desc, bool whole_group) {
    const std::string key = KeyOf(desc);
    return records.LoadGroup(*index, GroupOf(key), whole_group ? std::string_view() : key);
  };
  std::vector<Record> failed;
  for (const Record& row : failures) {
    if (row.op == Op::kName) failed.push_back(row);
  }
  cache.impl_->build = [&registry, scope, failed](std::vector<Record> rows) {
    rows.insert(rows.end(), failed.begin(), failed.end());
    return BuildCache<Op>(rows, registry, scope);
  };
  return cache;
}

template <class Op>
const Quarantine& DispatchCacheOf<Op>::quarantine() const {
  return impl_->quarantine;
}

template <class Op>
std::vector<Record> DispatchCacheOf<Op>::RecordsOf(const Desc& desc) const {
  return impl_->read ? impl_->read(desc, true) : std::vector<Record>();
}

template <class Op>
std::vector<Record> DispatchCacheOf<Op>::RecordsOf(const Candidates<Op>& candidates) const {
  std::vector<Record> all;
  for (const Desc& key : OpTraits<Op>::LookupKeys(candidates)) {
    std::vector<Record> rows = impl_->read ? impl_->read(key, false) : std::vector<Record>();
    all.insert(all.end(), std::make_move_iterator(rows.begin()),
               std::make_move_iterator(rows.end()));
  }
  return all;
}

template <class Op>
std::size_t DispatchCacheOf<Op>::size() const {
  return impl_->entries;
}
template <class Op>
const ImportReport& DispatchCacheOf<Op>::last_import() const {
  return impl_->report;
}

template <class Op>
void DispatchCacheOf<Op>::ForEach(
    const std::function<void(const Desc&, const Spec&)>& visit) const {
  std::vector<const ProblemGroup<Op>*> groups;
  for (const ProblemGroup<Op>& group : impl_->table.groups()) groups.push_back(&group);
  std::sort(groups.begin(), groups.end(),
            [](const ProblemGroup<Op>* x, const ProblemGroup<Op>* y) { return x->key < y->key; });
  for (const ProblemGroup<Op>* group : groups) {
    for (std::size_t i = 0; i < group->batches.size(); ++i) {
      Desc desc = group->key;
      SetBatch(desc, group->batches[i]);
      visit(desc, group->specs[i]);
    }
  }
}

template <class Op>
int DispatchCacheOf<Op>::Export(std::ostream& out) const {
  try {
    std::set<std::string> lines = impl_->aside;
    for (const ProblemGroup<Op>& group : impl_->table.groups()) {
      for (std::size_t i = 0; i < group.batches.size(); ++i) {
        Desc desc = group.key;
        SetBatch(desc, group.batches[i]);
        lines.insert(impl_->EntryLine(desc, group.specs[i], group.extra[i]));
      }
    }
    out << CacheHeader(impl_->device) << '\n';
    for (const std::string& line : lines) out << line << '\n';
    out.flush();
  } catch (
      ...) {  // a stream with exceptions switched on, or no memory: the caller sees -1 either way
    return -1;
  }
  return out ? static_cast<int>(impl_->entries) : -1;
}

template <class Op>
int DispatchCacheOf<Op>::Import(std::istream& in) {
  ImportTally tally;
  try {
    typename Impl::Standing standing;
    std::string text;
    for (int number = 1; std::getline(in, text); ++number) {
      if (!text.empty() && text.back() == '\r') text.pop_back();
      if (!text.empty()) tally.Count(impl_->Take(text, number, standing, tally), number);
    }
  } catch (...) {  // a stream with exceptions switched on, or no memory: what was read stands
    tally.StoppedEarly();
  }
  impl_->report = tally.Report();
  return impl_->report.resolved;
}

/// In one .cc file of the operation's room.
#define TILEWRIGHT_INSTANTIATE_CACHE(OP)                                                      \
  template class DispatchCacheOf<OP>;                                                         \
  template DispatchCacheOf<OP> BuildCache<OP>(std::span<const Record>, const OpRegistry<OP>&, \
                                              const RecordScope&, BuildReport*);              \
  template void AddToQuarantine<OP>(Quarantine&, std::span<const Record>, const RecordScope&)

}  // namespace tilewright
