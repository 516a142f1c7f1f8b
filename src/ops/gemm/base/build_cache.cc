#include <map>
#include <optional>

#include "tilewright/gemm_stages.h"

namespace tilewright {
DispatchCache BuildCache(std::span<const Record> records, const Registry& registry,
                         const RecordScope& scope, BuildReport* report) {
  BuildReport counts;
  std::map<std::string, std::vector<Record>> by_problem;
  for (const Record& record : records) {
    if (record.op != "gemm") continue;
    if (record.scope != scope) {
      ++counts.foreign;
      continue;
    }
    const Kernel* kernel = registry.Find(record.kernel);
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
  const Quarantine quarantine = BuildQuarantine(records, scope);
  const auto kernels = registry.kernels();
  DispatchCache cache(std::vector<Kernel*>(kernels.begin(), kernels.end()), scope.device,
                      scope.policy);
  for (auto& [key, rows] : by_problem) {
    const auto desc = ParseKey(key);
    if (!desc || !Validate(*desc)) {
      counts.unreadable += static_cast<int>(rows.size());
      continue;
    }
    const std::string family = FamilyKeyOf(*desc);
    std::erase_if(rows, [&](const Record& row) {
      Kernel* kernel = registry.Find(row.kernel);
      if (quarantine.Find(kernel->info(), family) != nullptr) {
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
    for (const Record& row : rows) {
      if (row.kernel == pick->kernel && row.spec == pick->spec)
        spec->predicted_us = static_cast<float>(row.predicted_us);
    }
    if (cache.Insert(*desc, *spec)) ++counts.problems;
  }
  if (report != nullptr) *report = counts;
  return cache;
}

Quarantine BuildQuarantine(std::span<const Record> records, const RecordScope& scope) {
  Quarantine quarantine;
  AddToQuarantine<GemmOp>(quarantine, records, scope);
  return quarantine;
}

}  // namespace tilewright
