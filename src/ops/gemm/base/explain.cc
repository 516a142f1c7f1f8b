#include <algorithm>
#include <limits>
#include <map>

#include "ops/gemm/base/gemm_op.h"
#include "tilewright/stages.h"

namespace tilewright {

std::vector<CandidateReport> Explain(const GemmCandidates& candidates, const GemmChoice* choice,
                                     std::span<const Record> records, const RecordScope& scope) {
  std::map<std::string, std::vector<CombinedRecord>>
      by_problem;  // a problem of open layout has records under several keys
  const auto combined_for = [&](const std::string& key) -> const std::vector<CombinedRecord>& {
    const auto [at, fresh] = by_problem.try_emplace(key);
    if (fresh) {
      std::vector<Record> mine;
      for (const Record& record : records) {
        if (record.op == "gemm" && record.problem == key && record.scope == scope)
          mine.push_back(record);
      }
      at->second = Combine(mine);
    }
    return at->second;
  };

  std::vector<CandidateReport> rows, rejected;
  for (const GemmCandidate& candidate : candidates.all()) {
    CandidateReport row;
    row.kernel = std::string(candidate.kernel->name());
    if (!candidate.feasible()) {
      row.reason = candidate.rejection->ToString();
      rejected.push_back(std::move(row));
      continue;
    }
    row.feasible = true;
    const auto& combined = combined_for(KeyOf(Packed(candidates.problem(), *candidate.kernel)));
    for (const LaunchSpec& spec : candidate.specs) {
      CandidateReport one = row;
      one.spec = SpecText(spec);
      one.predicted_us = spec.predicted_us;
      one.provenance =
          candidate.kernel->info().reference ? Provenance::kDefault : Provenance::kModel;
      for (const CombinedRecord& record : combined) {
        if (record.kernel != one.kernel || record.spec != one.spec) continue;
        if (record.fingerprint != candidate.kernel->info().fingerprint) continue;
        one.measured_us = record.median_us;
        one.low_us = record.low_us, one.high_us = record.high_us;
        one.samples = record.samples;
        one.provenance = Provenance::kMeasured;
      }
      if (choice != nullptr && choice->spec() == spec) {
        one.chosen = true;
        one.provenance = choice->provenance();
      }
      rows.push_back(std::move(one));
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const CandidateReport& x, const CandidateReport& y) {
                     if (x.chosen != y.chosen) return x.chosen;
                     const double unmeasured = std::numeric_limits<double>::infinity();
                     const double mx = x.measured_us > 0 ? x.measured_us : unmeasured,
                                  my = y.measured_us > 0 ? y.measured_us : unmeasured;
                     if (mx != my) return mx < my;
                     if (x.predicted_us != y.predicted_us) return x.predicted_us < y.predicted_us;
                     return x.kernel < y.kernel;
                   });
  int rank = 0;
  for (CandidateReport& row : rows) row.rank = ++rank;
  rows.insert(rows.end(), std::make_move_iterator(rejected.begin()),
              std::make_move_iterator(rejected.end()));
  return rows;
}

}  // namespace tilewright
