#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/op_traits.h"
#include "tilewright/stages.h"

namespace tilewright {

/// The decisions of the records for one operation: by problem, then by batch. Immutable once built.
template <class Op>
class TunedTable final : public TunedSpecs<Op> {
 public:
  using Desc = typename Op::Desc;
  using Spec = typename Op::Spec;
  using typename TunedSpecs<Op>::Hit;

  void Set(const Desc& desc, const Spec& spec) { Family(desc)[BatchOf(desc)] = spec; }

  std::optional<Spec> Find(const Desc& desc) const override {
    const auto* batches = FamilyOf(desc);
    if (batches == nullptr) return std::nullopt;
    const auto found = batches->find(BatchOf(desc));
    if (found == batches->end()) return std::nullopt;
    return found->second;
  }
  std::optional<Hit> LowerBoundHit(const Desc& desc) const override {
    const auto* batches = FamilyOf(desc);
    if (batches == nullptr) return std::nullopt;
    const auto found = batches->lower_bound(BatchOf(desc));
    if (found == batches->end()) return std::nullopt;
    return FeasibleHit(*found, desc);
  }
  std::optional<Hit> FloorBoundHit(const Desc& desc) const override {
    const auto* batches = FamilyOf(desc);
    if (batches == nullptr) return std::nullopt;
    auto found = batches->upper_bound(BatchOf(desc));
    if (found == batches->begin()) return std::nullopt;
    return FeasibleHit(*--found, desc);
  }

 private:
  using Batches = std::map<std::int32_t, Spec>;

  static Desc FamilyOfDesc(const Desc& desc) {
    Desc family = desc;
    SetBatch(family, 0);
    return family;
  }
  Batches& Family(const Desc& desc) { return families_[FamilyOfDesc(desc)]; }
  const Batches* FamilyOf(const Desc& desc) const {
    const auto found = families_.find(FamilyOfDesc(desc));
    return found == families_.end() ? nullptr : &found->second;
  }
  static std::optional<Hit> FeasibleHit(const std::pair<const std::int32_t, Spec>& entry,
                                        const Desc& desc) {
    const Hit hit{entry.second, entry.first};
    if (hit.batch != BatchOf(desc) && hit.spec.kernel->IsFeasible(desc)) return std::nullopt;
    return hit;
  }

  std::map<Desc, Batches> families_;
};

template <class Op>
Result<typename Op::Desc> ParseProblem(std::string_view key) {
  return OpTraits<Op>::ParseKey(key);
}

template <class Op>
void AddToQuarantine(Quarantine& quarantine, std::span<const Record> records,
                     const RecordScope& scope) {
  for (const Record& record : records) {
    if (record.op != Op::kName || record.verdict == Verdict::kOk) continue;
    if (record.scope.device != scope.device || record.scope.libraries != scope.libraries) continue;
    const auto desc = ParseProblem<Op>(record.problem);
    if (!desc) continue;
    quarantine.Add(record.kernel, record.fingerprint, OpTraits<Op>::FamilyKey(*desc),
                   std::string(VerdictName(record.verdict)) + ": " + record.evidence);
  }
}

template <class Op>
std::unique_ptr<const TunedSpecs<Op>> BuildTuned(
    std::span<const Record> records, const std::type_identity_t<OpRegistry<Op>>& registry,
    const RecordScope& scope) {
  Quarantine quarantine;
  AddToQuarantine<Op>(quarantine, records, scope);
  std::map<std::string, std::vector<Record>> by_problem;
  for (const Record& record : records) {
    if (record.op != Op::kName || record.scope != scope || record.verdict != Verdict::kOk) continue;
    const auto* kernel = registry.Find(record.kernel);
    if (kernel == nullptr || kernel->info().fingerprint != record.fingerprint) continue;
    by_problem[record.problem].push_back(record);
  }
  auto table = std::make_unique<TunedTable<Op>>();
  for (auto& [key, rows] : by_problem) {
    const auto desc = ParseProblem<Op>(key);
    if (!desc || !Validate(*desc)) continue;
    const std::string family = OpTraits<Op>::FamilyKey(*desc);
    std::erase_if(rows, [&](const Record& row) {
      auto* kernel = registry.Find(row.kernel);
      return quarantine.Find(kernel->info(), family) != nullptr || !ParseSpec(row.spec, kernel) ||
             kernel->IsFeasible(*desc).has_value();
    });
    const std::optional<CombinedRecord> pick = Decide(rows);
    if (!pick) continue;
    auto spec = ParseSpec(pick->spec, registry.Find(pick->kernel));
    spec->measured_us = static_cast<float>(pick->median_us);
    for (const Record& row : rows) {
      if (row.kernel == pick->kernel && row.spec == pick->spec)
        spec->predicted_us = static_cast<float>(row.predicted_us);
    }
    table->Set(*desc, *spec);
  }
  return table;
}

}  // namespace tilewright
