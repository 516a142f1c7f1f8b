#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "engine/record_text.h"
#include "tilewright/records.h"

namespace tilewright {
namespace {

constexpr double kDeviations = 1.96;  // of a 95 % interval

// Sessions of one machine are taken to differ by at least this (one standard deviation of the
// logarithm), even if the few available ones agree by chance.
constexpr double kLeastBetween = 0.005;

// One session's median in the logarithm, with its own variance.
struct Effect {
  double value = 0, variance = 0;
};

struct Candidate {
  CombinedRecord record;
  std::vector<Effect> finished, unfinished;
};

bool IsTimed(const Record& row) {
  return row.verdict == Verdict::kOk && row.samples > 0 && row.median_us > 0 &&
         std::isfinite(row.median_us);
}

// Half the interval in the logarithm is 1.96 standard errors; a row without a valid interval is
// assumed to be accurate to a tenth.
Effect EffectOf(const Record& row) {
  const bool sane = row.low_us > 0 && row.high_us >= row.low_us && std::isfinite(row.high_us);
  const double half = sane ? std::max(0.5 * std::log(row.high_us / row.low_us), 1e-4) : 0.1;
  return {std::log(row.median_us), half * half / (kDeviations * kDeviations)};
}

// The method of moments: what the medians scatter beyond their own variances.
double VarianceBetween(std::span<const Effect> effects) {
  double weights = 0, squares = 0, sum = 0;
  for (const Effect& effect : effects) {
    const double weight = 1 / effect.variance;
    weights += weight, squares += weight * weight, sum += weight * effect.value;
  }
  const double mean = sum / weights;
  double scatter = 0;
  for (const Effect& effect : effects)
    scatter += (effect.value - mean) * (effect.value - mean) / effect.variance;
  const double freedom = static_cast<double>(effects.size()) - 1;
  const double between = (scatter - freedom) / (weights - squares / weights);
  return std::max(between, kLeastBetween * kLeastBetween);
}

void Estimate(std::span<const Effect> effects, CombinedRecord& record) {
  if (effects.empty()) return;
  record.sessions = static_cast<int>(effects.size());
  double center = effects.front().value, half = kDeviations * std::sqrt(effects.front().variance);
  if (effects.size() > 1) {
    const double between = VarianceBetween(effects);
    double weights = 0, sum = 0;
    for (const Effect& effect : effects) {
      const double weight = 1 / (effect.variance + between);
      weights += weight, sum += weight * effect.value;
    }
    center = sum / weights;
    half = kDeviations * std::sqrt(between + 1 / weights);
  }
  record.median_us = std::exp(center);
  record.low_us = std::exp(center - half);
  record.high_us = std::exp(center + half);
}

}  // namespace

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
  std::map<std::tuple<std::string_view, std::string_view, std::string_view>, Candidate> candidates;
  for (const Record* row : rows) {
    Candidate& candidate = candidates[{row->kernel, row->spec, row->fingerprint}];
    CombinedRecord& record = candidate.record;
    record.kernel = row->kernel, record.fingerprint = row->fingerprint, record.spec = row->spec;
    if (!IsTimed(*row)) continue;
    // Unfinished sessions stopped where they happened to be: their few samples do not water down
    // those of a finished one.
    if (row->finished && !std::exchange(record.finished, true)) record.samples = 0;
    if (row->finished == record.finished) record.samples += row->samples;
    (row->finished ? candidate.finished : candidate.unfinished).push_back(EffectOf(*row));
  }
  std::vector<CombinedRecord> result;
  for (auto& [key, candidate] : candidates) {
    Estimate(candidate.record.finished ? candidate.finished : candidate.unfinished,
             candidate.record);
    result.push_back(std::move(candidate.record));
  }
  return result;
}

}  // namespace tilewright
