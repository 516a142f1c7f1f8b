#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tilewright/executor.h"
#include "tilewright/gemm.h"
#include "tilewright/gemm_stages.h"
#include "tilewright/records.h"
#include "tilewright/result.h"
#include "tilewright/tuner.h"

namespace tilewright {

/// Runs GEMM candidates for the tuner on some device, real, recorded or simulated.
class GemmMeasurer {
 public:
  virtual ~GemmMeasurer() = default;
  /// Makes the operands of `problem` (pack_b may be kPackAny: every kernel gets its own layout).
  /// The following calls are about it.
  virtual Status Prepare(const GemmDesc& problem) = 0;
  /// Launches once into poisoned, guarded memory and compares with the oracle. A launch that
  /// returns an error is Verdict::kError.
  virtual Tuner::Outcome Check(const LaunchSpec& spec) = 0;
  /// Launches `reps` times in a row.
  virtual Tuner::Outcome Time(const LaunchSpec& spec, int reps) = 0;
};

struct CpuMeasurerOptions {
  MeasurePolicy policy = MeasurePolicy::kCold;
  std::int64_t llc_bytes = 0;  ///< the last-level cache to outrun; 0 = MeasureLlcBytes on first
                               ///< use, and what the system reports
  std::int64_t max_bytes =
      0;  ///< of operands held at once; 0 = a quarter of the memory that is available
};
/// Measures on this machine with `executor`, which must outlive it. Cold: the weights of
/// consecutive launches rotate over copies of at least three times the last-level cache together
/// (and twice the reported one, where that is 64 MiB or less; as many as `max_bytes` allows). The
/// check runs on whole numbers, for which every precision is exact, and on random ones within the
/// tolerance of the type, twice for kernels that claim to be deterministic. Problems with num > 1
/// are ErrorCode::kUnsupported.
std::unique_ptr<GemmMeasurer> MakeCpuGemmMeasurer(Executor& executor,
                                                  const CpuMeasurerOptions& options = {});

struct TuneProblem {
  GemmDesc desc;  ///< pack_b may be kPackAny: candidates of every layout race, each is recorded
                  ///< under its own
  double weight =
      1;  ///< calls, relative to each other: when the budget is short, heavy problems come first
};

struct TuneProgress {
  int problem = 0, problems = 0;  ///< `problem` is 0-based, in the order of tuning
  const GemmDesc* desc = nullptr;
  double fraction = 0;  ///< of all, 0..1
  double device_seconds = 0;
  std::string best;       ///< kernel that leads, "" at first
  double best_us = 0;     ///< when finished
  bool finished = false;  ///< this problem
};

struct TuneOptions {
  FeasibleOptions feasible;
  RecordScope scope;
  Tuner::Options tuner;       ///< budget_us is per problem here; 0 = shared out of `budget_seconds`
  double budget_seconds = 0;  ///< of device time for all problems; 0 = none
  bool remeasure = false;     ///< also problems whose candidates are all recorded
  const std::atomic<bool>* cancel =
      nullptr;  ///< set it from a signal handler; looked at between samples
  std::function<void(const TuneProgress&)> progress;
};

struct TuneRow {
  GemmDesc desc;
  std::string kernel, spec;  ///< the winner; "" when nothing could be measured
  double us = 0;
  std::string before;    ///< what would have run: the incumbent, else the model's pick
  double before_us = 0;  ///< 0 = not timed
  Tuner::Gain gain;      ///< over `before`
  bool skipped = false;  ///< everything was recorded already
  bool conclusive = false;
  std::string inconclusive;  ///< why not
  int candidates = 0, timed = 0, quarantined = 0;
  std::string trouble;  ///< why there is no winner, or the records could not be written
};
struct TuneReport {
  std::vector<TuneRow> rows;  ///< in the caller's order
  int tuned = 0, skipped = 0, failed = 0, not_reached = 0;
  bool cancelled = false, out_of_budget = false;
  double device_seconds = 0;
};

/// Tunes every problem and appends what was measured to `records`, problem by problem, so that a
/// stop at any time loses at most the problem at hand (a cancel keeps even that). All candidates
/// are recorded, winners marked; failures are quarantined with their evidence. Candidates that
/// records know already (same fingerprint, same scope) are not measured again, but for the
/// incumbent, which races newcomers. Fails only for a problem that is invalid, before anything is
/// measured.
Result<TuneReport> TuneGemm(std::span<const TuneProblem> problems, const Registry& registry,
                            const DeviceSpec& device, Records& records, GemmMeasurer& measurer,
                            const TuneOptions& options);

}  // namespace tilewright
