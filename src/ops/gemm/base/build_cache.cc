#include <algorithm>
#include <cmath>
#include <map>

#include "tilewright/stages.h"

namespace tilewright {
namespace {

// A candidate that no session decided for replaces the decided one only beyond doubt: intervals
// apart and this much faster.
constexpr double kOvertakeGain = 0.01;

// The decision of the latest session, unless a candidate measured since (by another process, on
// another board of the class) is better beyond doubt; without any decision the least median.
// What the deciding session itself measured is in its decision already: it raced candidates in
// pairs, and those that it dropped early have a few samples, whose interval may be as narrow as it
// is wrong. `combined` is sorted, so equal times fall to the first name.
const CombinedRecord* Pick(std::span<const CombinedRecord> combined) {
  const CombinedRecord* decided = nullptr;
  for (const CombinedRecord& one : combined) {
    if (one.samples == 0 || one.chosen_unix_ms == 0) continue;
    if (decided == nullptr || one.chosen_unix_ms > decided->chosen_unix_ms ||
        (one.chosen_unix_ms == decided->chosen_unix_ms && one.chosen_id > decided->chosen_id)) {
      decided = &one;
    }
  }
  const CombinedRecord* fastest = nullptr;
  for (const CombinedRecord& one : combined) {
    if (one.samples == 0) continue;
    if (decided != nullptr && one.last_unix_ms <= decided->chosen_unix_ms) continue;
    if (fastest == nullptr || one.median_us < fastest->median_us) fastest = &one;
  }
  if (decided == nullptr || fastest == nullptr) return decided != nullptr ? decided : fastest;
  const bool beyond_doubt = fastest->high_us < decided->low_us &&
                            fastest->median_us < (1 - kOvertakeGain) * decided->median_us;
  return beyond_doubt ? fastest : decided;
}

}  // namespace

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
  DispatchCache cache(std::vector<Kernel*>(kernels.begin(), kernels.end()), scope.device);
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
    const std::vector<CombinedRecord> combined = Combine(rows);
    const CombinedRecord* pick = Pick(combined);
    if (pick == nullptr) continue;
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
  for (const Record& record : records) {
    if (record.op != "gemm" || record.verdict == Verdict::kOk) continue;
    if (record.scope.device != scope.device || record.scope.libraries != scope.libraries) continue;
    const auto desc = ParseKey(record.problem);
    if (!desc) continue;
    quarantine.Add(record.kernel, record.fingerprint, FamilyKeyOf(*desc),
                   std::string(VerdictName(record.verdict)) + ": " + record.evidence);
  }
  return quarantine;
}

}  // namespace tilewright
