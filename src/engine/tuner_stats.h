#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tilewright {

/// Blocks of single launches at the start: the first pays for page faults and cold code, the second
/// does not.
constexpr int kFirstBlocks = 2;

/// Launches of a later sample, so that it takes about `sample_us`; `us` is the better of the first two,
/// infinite where there is none.
inline int RepsOf(double us, double sample_us, int most) {
  return static_cast<int>(std::clamp(sample_us / us, 1.0, static_cast<double>(most)));
}

double Median(std::vector<double> values);

/// Median with a 95 % interval from order statistics; below six samples, which bound nothing, the
/// range widened by a tenth.
struct MedianInterval {
  double median = 0, low = 0, high = 0;
};
MedianInterval IntervalOf(std::vector<double> values);

/// Mean of paired differences without the lowest and highest eighth, and its standard error: a
/// spike in one block moves neither much. Fewer than two values have an infinite error.
struct PairedDifference {
  double mean = 0, error = 0;
};
PairedDifference TrimmedMean(std::vector<double> differences);

}  // namespace tilewright
