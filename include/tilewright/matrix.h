#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tilewright/records.h"
#include "tilewright/result.h"
#include "tilewright/stages.h"
#include "tilewright/tune.h"
#include "tilewright/tuner.h"

namespace tilewright {

/// What one candidate took in one round, in microseconds, as Tuner::Outcome has it.
struct MatrixSample {
  double us = 0;       ///< of one launch
  double cost_us = 0;  ///< device time of the whole sample
  double reference_us = 0;
  bool disturbed = false;
};

/// A candidate whose result was right.
struct MatrixCandidate {
  Tuner::Candidate candidate;  ///< no incumbent
  int reps = 1;  ///< launches of a sample after the first two rounds, which have one each
  /// By round; those of candidates far behind the fastest end early.
  std::vector<MatrixSample> samples;
};

struct MatrixProblem {
  std::string op, problem;  ///< Op::kName and KeyOf
  std::vector<MatrixCandidate> candidates;
};

/// Every candidate of some problems, in rounds: with it a tuner is judged on any machine, by the noise of the
/// one that was measured.
struct Matrix {
  RecordScope scope;
  std::vector<MatrixProblem> problems;
};

/// JSON Lines, each sealed as lines of exported records are: a header {"format":"tilewright.matrix", "schema":1,
/// "device", "libraries", "policy"}, then a line for each candidate: "op", "problem", "name", "predicted_us",
/// "group", "fallback", "reps", and "us", "cost_us", "reference_us", "disturbed" by round. Candidates of one
/// problem are consecutive.
std::string FormatMatrix(const Matrix& matrix);
/// kCorrupt names the line: one that is no line of a matrix, was changed, or of a later schema.
Result<Matrix> ParseMatrix(std::string_view text);

struct MatrixOptions {
  FeasibleOptions feasible = {};
  int rounds = 60;            ///< at least 3
  Tuner::Options tuner = {};  ///< its sample_us, max_reps, give_up and seed
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(double)> progress = {};  ///< 0..1
};

/// Measures every feasible launch of every kernel of a problem, the reference left out: each checked once, then
/// timed in rounds of fresh random order. Fails if no candidate is right; kCancelled.
template <class Op>
Result<MatrixProblem> MeasureMatrix(const typename Op::Desc& problem,
                                    const OpRegistry<Op>& registry, const DeviceSpec& device,
                                    std::type_identity_t<Measurer<Op>>& measurer,
                                    const MatrixOptions& options);

struct ReplayOptions {
  /// Of the device time of an exhaustive sweep: 50 samples of every candidate. 0: no limit.
  double budget_percent = 5;
  int replicates = 200;
  std::uint64_t seed = 1;
  Tuner::Options tuner = {};  ///< its budget and seed are the replay's own
};

/// What the tuner's choices lose against the fastest candidate, 0.01: one percent.
struct Regret {
  double mean = 0, p95 = 0, max = 0;
};
struct ReplayRow {
  std::string op, problem;
  int candidates = 0;
  Regret regret;
  double model_regret = 0;    ///< of what would run without any measurement
  double decided = 0;         ///< share of the sessions that were conclusive
  double device_seconds = 0;  ///< of a session, in the mean
};
struct ReplayReport {
  std::vector<ReplayRow> rows;
  Regret regret;              ///< over all sessions of all problems
  double device_seconds = 0;  ///< that one session of each problem takes
};

/// Runs sessions of the tuner on recorded times. A session begins at a random round and goes on round by round, a
/// block of the tuner's each, so that what drifted together does; the leader's hidden copy gets the round after. Which
/// candidate is the fastest follows from the medians of ratios within rounds. Equal options, equal report.
ReplayReport ReplayTuner(const Matrix& matrix, const ReplayOptions& options);

}  // namespace tilewright
