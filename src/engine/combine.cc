#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tilewright/records.h"

namespace tilewright {

std::vector<CombinedRecord> Combine(std::span<const Record> records) {
  // Sums in floating point depend on the order: take the rows in the order of their ids, whatever
  // order they came in.
  std::vector<const Record*> rows;
  for (const Record& record : records) {
    if (record.verdict == Verdict::kOk) rows.push_back(&record);
  }
  std::sort(rows.begin(), rows.end(), [](const Record* x, const Record* y) {
    return std::tie(x->id, x->kernel, x->spec, x->unix_ms, x->median_us) <
           std::tie(y->id, y->kernel, y->spec, y->unix_ms, y->median_us);
  });
  struct Sum {
    CombinedRecord record;
    double weight = 0, log_median = 0, inverse_variance = 0;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Sum> sums;
  for (const Record* row : rows) {
    Sum& sum = sums[{row->kernel, row->spec, row->fingerprint}];
    sum.record.kernel = row->kernel, sum.record.fingerprint = row->fingerprint,
    sum.record.spec = row->spec;
    if (row->chosen && std::tie(row->unix_ms, row->id) >=
                           std::tie(sum.record.chosen_unix_ms, sum.record.chosen_id)) {
      sum.record.chosen_unix_ms = row->unix_ms;
      sum.record.chosen_id = row->id;
    }
    sum.record.last_unix_ms = std::max(sum.record.last_unix_ms, row->unix_ms);
    if (row->samples <= 0 || !(row->median_us > 0) || !std::isfinite(row->median_us)) continue;
    const double weight = static_cast<double>(row->samples);
    sum.record.samples += row->samples;
    sum.weight += weight;
    sum.log_median += weight * std::log(row->median_us);
    // Half the interval in the logarithm stands for 1.96 standard errors; sessions are independent,
    // so precisions add.
    const bool sane = row->low_us > 0 && row->high_us >= row->low_us && std::isfinite(row->high_us);
    const double half = sane ? std::max(0.5 * std::log(row->high_us / row->low_us), 1e-4) : 0.1;
    sum.inverse_variance += 1.0 / (half * half);
  }
  std::vector<CombinedRecord> result;
  for (auto& [key, sum] : sums) {
    if (sum.weight > 0) {
      const double center = sum.log_median / sum.weight,
                   half = 1.0 / std::sqrt(sum.inverse_variance);
      sum.record.median_us = std::exp(center);
      sum.record.low_us = std::exp(center - half);
      sum.record.high_us = std::exp(center + half);
    }
    result.push_back(std::move(sum.record));
  }
  return result;
}

}  // namespace tilewright
