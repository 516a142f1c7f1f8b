#include "engine/tuner_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tilewright {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

MedianInterval IntervalOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double median = Median(values);
  const auto n = static_cast<double>(values.size());
  if (values.size() < 6) return {median, values.front() * 0.9, values.back() * 1.1};
  const double half = 0.98 * std::sqrt(n);  // 1.96 deviations of a binomial(n, 1/2)
  const auto low = static_cast<std::ptrdiff_t>(std::floor(n / 2 - half));
  const auto high = static_cast<std::ptrdiff_t>(std::ceil(n / 2 + half));
  const auto last = static_cast<std::ptrdiff_t>(values.size()) - 1;
  return {median, values[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(low, 0, last))],
          values[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(high, 0, last))]};
}

PairedDifference TrimmedMean(std::vector<double> differences) {
  if (differences.size() < 2) {
    return {differences.empty() ? 0 : differences.front(), std::numeric_limits<double>::infinity()};
  }
  std::sort(differences.begin(), differences.end());
  const std::size_t cut = differences.size() / 8, kept = differences.size() - 2 * cut;
  double sum = 0;
  for (std::size_t i = cut; i < cut + kept; ++i) sum += differences[i];
  const double mean = sum / static_cast<double>(kept);
  // Winsorised variance: the cut values count as the nearest kept one (Tukey and McLaughlin 1963).
  double squares = 0;
  for (std::size_t i = 0; i < differences.size(); ++i) {
    const double value = differences[std::clamp(i, cut, cut + kept - 1)];
    squares += (value - mean) * (value - mean);
  }
  const auto n = static_cast<double>(differences.size()), k = static_cast<double>(kept);
  const double deviation = std::sqrt(squares / (n - 1));
  return {mean, deviation * std::sqrt(n) / k};
}

}  // namespace tilewright
