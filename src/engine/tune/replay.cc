#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "core/random.h"
#include "engine/tuner_stats.h"
#include "tilewright/matrix.h"

namespace tilewright {
namespace {

/// Rounds of single launches, as the tuner's first blocks are.
constexpr std::size_t kSingleRounds = kFirstBlocks;
/// Samples of each candidate in the sweep that the budget is a share of.
constexpr double kSweepSamples = 50;

/// Samples of whole size, or of single launches where there are no others.
std::span<const MatrixSample> Sized(const MatrixCandidate& candidate) {
  const std::span<const MatrixSample> all = candidate.samples;
  return all.size() > kSingleRounds ? all.subspan(kSingleRounds) : all;
}

/// The time of every candidate over that of the fastest: medians of ratios within rounds.
std::vector<double> Truth(const MatrixProblem& problem) {
  std::vector<double> medians;
  for (const MatrixCandidate& one : problem.candidates) {
    std::vector<double> us;
    for (const MatrixSample& sample : Sized(one)) us.push_back(sample.us);
    medians.push_back(Median(std::move(us)));
  }
  const auto yardstick =
      static_cast<std::size_t>(std::min_element(medians.begin(), medians.end()) - medians.begin());
  const auto base = Sized(problem.candidates[yardstick]);
  std::vector<double> truth;
  for (const MatrixCandidate& one : problem.candidates) {
    const auto samples = Sized(one);
    std::vector<double> ratios;
    for (std::size_t round = 0; round < std::min(samples.size(), base.size()); ++round)
      ratios.push_back(samples[round].us / base[round].us);
    truth.push_back(Median(std::move(ratios)));
  }
  const double least = *std::min_element(truth.begin(), truth.end());
  for (double& ratio : truth) ratio /= least;
  return truth;
}

double SweepUs(const MatrixProblem& problem) {
  double us = 0;
  for (const MatrixCandidate& one : problem.candidates) {
    std::vector<double> costs;
    for (const MatrixSample& sample : Sized(one)) costs.push_back(sample.cost_us);
    us += kSweepSamples * Median(std::move(costs));
  }
  return us;
}

std::size_t Fallback(const MatrixProblem& problem) {
  const auto at = std::find_if(problem.candidates.begin(), problem.candidates.end(),
                               [](const MatrixCandidate& one) { return one.candidate.fallback; });
  return at == problem.candidates.end() ? 0
                                        : static_cast<std::size_t>(at - problem.candidates.begin());
}

/// Answers the tuner's questions from the matrix.
class Replay {
 public:
  Replay(const MatrixProblem& problem, std::uint64_t seed) : problem_(problem) {
    std::size_t rounds = 1;
    for (const MatrixCandidate& one : problem.candidates)
      rounds = std::max(rounds, Sized(one).size());
    start_ = static_cast<std::size_t>(SplitMix64(seed) % rounds);
  }

  /// A block that was dropped is measured again, in another round.
  Tuner::Outcome Answer(const Tuner::Ask& ask, int dropped) {
    if (ask.action == Tuner::Action::kCheck) return {};
    const MatrixCandidate& one = problem_.candidates[static_cast<std::size_t>(ask.candidate)];
    const int round = ask.block + dropped;
    auto& [last, again] = asked_[ask.candidate];
    again = std::exchange(last, round) == round ? again + 1 : 0;
    const auto block = static_cast<std::size_t>(ask.block);
    const auto sized = Sized(one);
    const bool single = dropped == 0 && block <= std::min(kSingleRounds, one.samples.size());
    const std::size_t at = start_ + static_cast<std::size_t>(round) + again;
    const MatrixSample& sample = single ? one.samples[block - 1] : sized[at % sized.size()];
    Tuner::Outcome outcome;
    outcome.us = sample.us, outcome.cost_us = sample.cost_us;
    outcome.disturbed = sample.disturbed, outcome.reference_us = sample.reference_us;
    return outcome;
  }

 private:
  const MatrixProblem& problem_;
  std::size_t start_ = 0;
  /// By candidate: the round of its last sample, and how many of that round came before.
  std::map<int, std::pair<int, std::size_t>> asked_;
};

Regret RegretOf(std::vector<double> losses) {
  std::sort(losses.begin(), losses.end());
  const auto count = static_cast<double>(losses.size());
  const auto p95 = static_cast<std::size_t>(std::ceil(0.95 * count)) - 1;
  return {std::accumulate(losses.begin(), losses.end(), 0.0) / count, losses[p95], losses.back()};
}

}  // namespace

ReplayReport ReplayTuner(const Matrix& matrix, const ReplayOptions& options) {
  ReplayReport report;
  std::vector<double> all;
  for (const MatrixProblem& problem : matrix.problems) {
    std::vector<Tuner::Candidate> candidates;
    for (const MatrixCandidate& one : problem.candidates) candidates.push_back(one.candidate);
    const std::vector<double> truth = Truth(problem);
    Tuner::Options tuning = options.tuner;
    tuning.budget_us = options.budget_percent / 100 * SweepUs(problem);
    ReplayRow row{problem.op, problem.problem, static_cast<int>(candidates.size()), {}, 0, 0, 0};
    row.model_regret = truth[Fallback(problem)] - 1;
    std::vector<double> losses;
    std::uint64_t seed = options.seed;
    for (int replicate = 0; replicate < options.replicates; ++replicate) {
      tuning.seed = SplitMix64(seed);
      Replay replay(problem, SplitMix64(seed));
      Tuner tuner(candidates, tuning);
      while (const auto ask = tuner.Next()) tuner.Notify(replay.Answer(*ask, tuner.dropped()));
      const auto best = tuner.Best();
      losses.push_back(truth[best ? static_cast<std::size_t>(*best) : Fallback(problem)] - 1);
      row.decided += tuner.conclusive() ? 1 : 0;
      row.device_seconds += tuner.spent_us() * 1e-6;
    }
    row.decided /= options.replicates, row.device_seconds /= options.replicates;
    report.device_seconds += row.device_seconds;
    all.insert(all.end(), losses.begin(), losses.end());
    row.regret = RegretOf(std::move(losses));
    report.rows.push_back(std::move(row));
  }
  if (!all.empty()) report.regret = RegretOf(std::move(all));
  return report;
}

}  // namespace tilewright
