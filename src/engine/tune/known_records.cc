#include "engine/tune/known_records.h"

#include <algorithm>

namespace tilewright {

KnownRecords::KnownRecords(std::span<const Record> records, const RecordScope& scope) {
  for (const Record& record : records) {
    if (record.scope == scope) by_problem_[record.problem].push_back(record);
  }
}

std::span<const Record> KnownRecords::Of(std::string_view problem) const {
  const auto at = by_problem_.find(problem);
  return at == by_problem_.end() ? std::span<const Record>() : at->second;
}

bool KnownRecords::Has(std::string_view problem, const KernelInfo& kernel,
                       std::string_view spec) const {
  const std::span<const Record> rows = Of(problem);
  return std::any_of(rows.begin(), rows.end(), [&](const Record& row) {
    return row.kernel == kernel.name && row.spec == spec && row.fingerprint == kernel.fingerprint &&
           ((row.samples > 0 && row.finished) || row.verdict != Verdict::kOk);
  });
}

std::vector<int> FirstChecked(Tuner& tuner) {
  std::vector<int> checked;
  while (const auto ask = tuner.Next()) {
    if (ask->action != Tuner::Action::kCheck) break;
    checked.push_back(ask->candidate);
    tuner.Notify({});
  }
  return checked;
}

}  // namespace tilewright
