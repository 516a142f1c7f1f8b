#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "common.h"
#include "console.h"
#include "tilewright/tune.h"

namespace tilewright::cli {

/// One launch that was timed beside others.
struct LaunchTime {
  double us = 0;        ///< median
  std::string trouble;  ///< why there is no time
};

/// What one sample said.
struct LaunchSample {
  double us = 0;
  double reference_us = 0;  ///< the reference loop around it; 0: none was timed
};

/// The median of the samples of one launch, without those from a slow spell of the machine, in which the reference
/// loop took more than a tenth longer than at its best, `least_reference_us`; of all where there are no others.
inline double MedianOf(const std::vector<LaunchSample>& samples, double least_reference_us) {
  constexpr double kSlow = 1.1;
  std::vector<double> kept, all;
  for (const LaunchSample& sample : samples) {
    all.push_back(sample.us);
    if (sample.reference_us <= kSlow * least_reference_us) kept.push_back(sample.us);
  }
  return Median(kept.empty() ? all : kept);
}

/// Times launches of the problem that `measurer` has prepared, `samples` of each in turn, so that a
/// change of clocks affects all; what was taken in a slow spell does not count (MedianOf). One that fails is left out from then on; of one that takes several times
/// as long as the fastest, the samples for warming up are all there are: hundreds of launches of a product are
/// timed in the time that the slowest of them would take. Errors: kCancelled.
template <class Op>
Result<std::vector<LaunchTime>> TimeInTurn(Measurer<Op>& measurer,
                                           std::span<const typename Op::Spec> specs, int samples) {
  constexpr double kSampleUs = 2000;
  std::vector<LaunchTime> times(specs.size());
  std::vector<std::vector<LaunchSample>> taken(specs.size());
  double least_reference_us = std::numeric_limits<double>::infinity();
  std::vector<int> reps(specs.size(), 1);
  std::vector<bool> hopeless(specs.size(), false);
  const auto sample = [&](std::size_t i) {
    const Tuner::Outcome outcome = measurer.Time(specs[i], reps[i]);
    if (outcome.verdict == Verdict::kOk && !outcome.skipped) {
      taken[i].push_back({outcome.us, outcome.reference_us});
      least_reference_us = std::min(least_reference_us, outcome.reference_us);
    } else {
      times[i].trouble = outcome.evidence.empty() ? "failed" : outcome.evidence;
    }
  };
  // The chosen launch, which is the first, is timed in full whatever it takes.
  const auto give_up = [&](double times_the_fastest) {
    double fastest = std::numeric_limits<double>::infinity();
    for (const std::vector<LaunchSample>& of : taken) {
      if (!of.empty()) fastest = std::min(fastest, of.back().us);
    }
    for (std::size_t i = 1; i < specs.size(); ++i) {
      hopeless[i] =
          hopeless[i] || (!taken[i].empty() && taken[i].back().us > times_the_fastest * fastest);
    }
  };
  constexpr int kWarming = 2;
  for (int turn = -kWarming; turn < samples; ++turn) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (Interrupted()) return Fail(ErrorCode::kCancelled, "interrupted");
      if (!times[i].trouble.empty() || hopeless[i]) continue;
      sample(i);
    }
    // The first time round launches may wait for code and clocks.
    if (turn == -2) give_up(10);
    if (turn != -1) continue;
    give_up(4);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (taken[i].empty() || hopeless[i]) continue;
      reps[i] =
          std::clamp(static_cast<int>(kSampleUs / std::max(taken[i].back().us, 0.01)), 1, 10000);
      taken[i].clear();
    }
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (times[i].trouble.empty()) times[i].us = MedianOf(taken[i], least_reference_us);
  }
  return times;
}

}  // namespace tilewright::cli
