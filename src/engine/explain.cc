#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "engine/explain_template.h"

namespace tilewright {

std::vector<CombinedRecord> CombinedOf(std::span<const Record> records, std::string_view op,
                                       std::string_view problem, const RecordScope& scope) {
  std::vector<Record> mine;
  for (const Record& record : records) {
    if (record.op == op && record.problem == problem && record.scope == scope)
      mine.push_back(record);
  }
  return Combine(mine);
}

std::vector<CandidateReport> RankRows(std::vector<CandidateReport> rows,
                                      std::vector<CandidateReport> rejected) {
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
