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

/// Times launches of the problem that `measurer` has prepared, `samples` of each in turn, so that a
/// change of clocks affects all. One that fails is left out from then on; of one that takes several times
/// as long as the fastest, the samples for warming up are all there are: hundreds of launches of a product are
/// timed in the time that the slowest of them would take. Errors: kCancelled.
template <class Op>
Result<std::vector<LaunchTime>> TimeInTurn(Measurer<Op>& measurer,
                                           std::span<const typename Op::Spec> specs, int samples) {
  constexpr double kSampleUs = 2000;
  std::vector<LaunchTime> times(specs.size());
  std::vector<std::vector<double>> taken(specs.size());
  std::vector<int> reps(specs.size(), 1);
  std::vector<bool> hopeless(specs.size(), false);
  const auto sample = [&](std::size_t i) {
    const Tuner::Outcome outcome = measurer.Time(specs[i], reps[i]);
    if (outcome.verdict == Verdict::kOk && !outcome.skipped) {
      taken[i].push_back(outcome.us);
    } else {
      times[i].trouble = outcome.evidence.empty() ? "failed" : outcome.evidence;
    }
  };
  // The chosen launch, which is the first, is timed in full whatever it takes.
  const auto give_up = [&](double times_the_fastest) {
    double fastest = std::numeric_limits<double>::infinity();
    for (const std::vector<double>& of : taken) {
      if (!of.empty()) fastest = std::min(fastest, of.back());
    }
    for (std::size_t i = 1; i < specs.size(); ++i) {
      hopeless[i] =
          hopeless[i] || (!taken[i].empty() && taken[i].back() > times_the_fastest * fastest);
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
      reps[i] = std::clamp(static_cast<int>(kSampleUs / std::max(taken[i].back(), 0.01)), 1, 10000);
      taken[i].clear();
    }
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (times[i].trouble.empty()) times[i].us = Median(taken[i]);
  }
  return times;
}

}  // namespace tilewright::cli
