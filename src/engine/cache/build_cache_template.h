#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/op_traits.h"
#include "tilewright/dispatch_cache.h"

namespace tilewright {

template <class Op>
void AddToQuarantine(Quarantine& quarantine, std::span<const Record> records,
                     const RecordScope& scope) {
  for (const Record& record : records) {
    if (record.op != Op::kName || record.verdict == Verdict::kOk) continue;
    if (record.scope.device != scope.device || record.scope.libraries != scope.libraries) continue;
    const auto desc = OpTraits<Op>::ParseKey(record.problem);
    if (!desc) continue;
    quarantine.Add(record.kernel, record.fingerprint, OpTraits<Op>::QuarantineKey(*desc),
                   std::string(VerdictName(record.verdict)) + ": " + record.evidence);
  }
}

/// The records of this scope whose kernel is live and unchanged, by problem; the others counted.
template <class Op>
std::map<std::string, std::vector<Record>> UsableRecords(std::span<const Record> records,
                                                         const OpRegistry<Op>& registry,
                                                         const RecordScope& scope,
                                                         BuildReport& counts) {
  std::map<std::string, std::vector<Record>> by_problem;
  for (const Record& record : records) {
    if (record.op != Op::kName) continue;
    if (record.scope != scope) {
      ++counts.foreign;
      continue;
    }
    const auto* kernel = registry.Find(record.kernel);
    if (kernel == nullptr) {
      ++counts.unknown_kernel;
    } else if (kernel->info().fingerprint != record.fingerprint) {
      ++counts.stale;
    } else if (record.verdict != Verdict::kOk) {
      ++counts.quarantined;
    } else {
      by_problem[record.problem].push_back(record);
    }
  }
  return by_problem;
}

template <class Op>
DispatchCacheOf<Op> BuildCache(std::span<const Record> records, const OpRegistry<Op>& registry,
                               const RecordScope& scope, BuildReport* report) {
  BuildReport counts;
  auto by_problem = UsableRecords(records, registry, scope, counts);
  Quarantine quarantine;
  AddToQuarantine<Op>(quarantine, records, scope);
  const auto kernels = registry.kernels();
  DispatchCacheOf<Op> cache({kernels.begin(), kernels.end()}, scope.device, scope.policy);
  for (auto& [key, rows] : by_problem) {
    const auto desc = OpTraits<Op>::ParseKey(key);
    if (!desc || !Validate(*desc)) {
      counts.unreadable += static_cast<int>(rows.size());
      continue;
    }
    const std::string quarantine_key = OpTraits<Op>::QuarantineKey(*desc);
    std::erase_if(rows, [&](const Record& row) {
      auto* kernel = registry.Find(row.kernel);
      if (quarantine.Find(kernel->info(), quarantine_key) != nullptr) {
        ++counts.quarantined;
        return true;
      }
      if (!ParseSpec(row.spec, kernel) || kernel->IsFeasible(*desc)) {
        ++counts.unreadable;
        return true;
      }
      return false;
    });
    const std::optional<CombinedRecord> pick = Decide(rows);
    if (!pick) continue;
    counts.measurements += static_cast<int>(rows.size());
    auto spec = ParseSpec(pick->spec, registry.Find(pick->kernel));
    spec->measured_us = static_cast<float>(pick->median_us);
    spec->provisional = !pick->finished;
    for (const Record& row : rows) {
      if (row.kernel == pick->kernel && row.spec == pick->spec)
        spec->predicted_us = static_cast<float>(row.predicted_us);
    }
    if (cache.Insert(*desc, *spec)) ++counts.problems;
  }
  if (report != nullptr) *report = counts;
  return cache;
}

}  // namespace tilewright
