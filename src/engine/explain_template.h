#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/op_traits.h"
#include "tilewright/records.h"
#include "tilewright/stages.h"

namespace tilewright {

/// The records of one problem and scope, combined. `problem` is KeyOf.
std::vector<CombinedRecord> CombinedOf(std::span<const Record> records, std::string_view op,
                                       std::string_view problem, const RecordScope& scope);

/// Ranks the rows of `explain`: the chosen one first, then by measured, then by predicted time,
/// then by name; `rejected` follow.
std::vector<CandidateReport> RankRows(std::vector<CandidateReport> rows,
                                      std::vector<CandidateReport> rejected);

template <class Op>
std::vector<CandidateReport> Explain(const Candidates<Op>& candidates,
                                     const std::type_identity_t<Choice<Op>>* choice,
                                     std::span<const Record> records, const RecordScope& scope) {
  std::vector<CandidateReport> rows, rejected;
  std::string last_key;
  std::vector<CombinedRecord> combined;
  for (const Candidate<Op>& candidate : candidates.all()) {
    CandidateReport row;
    row.kernel = std::string(candidate.kernel->name());
    if (!candidate.feasible()) {
      row.reason = candidate.rejection->ToString();
      rejected.push_back(std::move(row));
      continue;
    }
    row.feasible = true;
    // A problem of open layout has records under several keys.
    const std::string key = KeyOf(OpTraits<Op>::Resolve(candidates.problem(), *candidate.kernel));
    if (key != last_key) combined = CombinedOf(records, Op::kName, key, scope);
    last_key = key;
    for (const typename Op::Spec& spec : candidate.specs) {
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
  return RankRows(std::move(rows), std::move(rejected));
}

}  // namespace tilewright
