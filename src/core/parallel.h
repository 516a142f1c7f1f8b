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

/// Splits [0, total) into consecutive ranges of at least `grain` (the last may be shorter; at most
/// four per worker) and runs f(begin, end) on the executor. With one worker, or a total below two
/// grains, f runs once on the calling thread: an operation of a microsecond must not wake other
/// threads. Allocates nothing.
template <class F>
void ParallelRanges(Executor& executor, std::int64_t total, std::int64_t grain, F&& f) {
  if (total <= 0) return;
  const std::int64_t most =
      executor.workers() == 1 ? 1 : 4 * static_cast<std::int64_t>(executor.workers());
  std::int64_t pieces = total / (grain < 1 ? 1 : grain);
  if (pieces > most) pieces = most;
  if (pieces <= 1) {
    f(std::int64_t{0}, total);
    return;
  }
  executor.Run(static_cast<int>(pieces),
               [&](int piece, int) { f(total * piece / pieces, total * (piece + 1) / pieces); });
}

}  // namespace tilewright
