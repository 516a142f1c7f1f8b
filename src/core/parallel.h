#pragma once

#include <algorithm>
#include <cstdint>

#include "tilewright/executor.h"

namespace tilewright {

/// How many of `workers` have something to do if `work` is split into pieces of `grain`; at least
/// 1, possibly fractional.
inline double BusyWorkers(double work, std::int64_t grain, int workers) {
  return std::clamp(work / static_cast<double>(grain), 1.0, static_cast<double>(workers));
}

/// Into how many ranges ParallelRanges splits: such of at least `grain` where they are too few for all
/// workers, else four for each worker, since the speeds of workers differ.
constexpr std::int64_t RangeCount(std::int64_t total, std::int64_t grain, int workers) {
  const std::int64_t ranges = total / (grain < 1 ? 1 : grain);
  if (workers == 1 || ranges <= 1) return total > 0 ? 1 : 0;
  return ranges < workers ? ranges : std::min<std::int64_t>(4 * workers, total);
}

/// Splits [0, total) into RangeCount consecutive ranges and runs f(begin, end) on the executor. With one
/// worker, or a total below two grains, f runs once on the calling thread: an operation of a microsecond
/// must not wake other threads. Allocates nothing.
template <class F>
void ParallelRanges(Executor& executor, std::int64_t total, std::int64_t grain, F&& f) {
  const std::int64_t ranges = RangeCount(total, grain, executor.workers());
  if (ranges == 1) f(std::int64_t{0}, total);
  if (ranges <= 1) return;
  executor.Run(static_cast<int>(ranges),
               [&](int range, int) { f(total * range / ranges, total * (range + 1) / ranges); });
}

}  // namespace tilewright
