#pragma once

#include <cstddef>
#include <vector>

namespace tilewright {

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
