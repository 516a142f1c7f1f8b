#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/records.h"
#include "tilewright/result.h"
#include "tilewright/stages.h"
#include "tilewright/tuner.h"

namespace tilewright {

/// Runs the candidates of an operation for the tuner on some device, real, recorded or simulated.
template <class Op>
class Measurer {
 public:
  virtual ~Measurer() = default;
  /// Makes the operands of `problem` (a layout may be open: every kernel gets its own). The
  /// following calls are about it.
  virtual Status Prepare(const typename Op::Desc& problem) = 0;
  /// Launches into poisoned, guarded memory and compares with the oracle. A launch that returns an
  /// error is Verdict::kError.
  virtual Tuner::Outcome Check(const typename Op::Spec& spec) = 0;
  /// Launches `reps` times in a row.
  virtual Tuner::Outcome Time(const typename Op::Spec& spec, int reps) = 0;
};

/// What a measurer makes up for a problem: equal options make equal operands, in any process of
/// this build.
struct TrialOptions {
  std::uint64_t seed = 1;  ///< of their random numbers
  /// That each sequence of attention holds, at most its context; 0: about a thousand.
  std::int32_t positions = 0;
};

/// How many bytes memory must rotate over so that next to none of them is in a cache when its turn comes:
/// three times the measured last level. That is what others left of it, and they may leave more later; and
/// a last level that does not replace what was used longest ago answers for a part of what is larger than
/// itself. So it is six times the reported size too, up to 512 MB. (One row by 2048 x 8192 of q4_0, two
/// cores of a Zen 4 with 32 MB, us by AVX2 and by AVX-512: over 64 MB 144 and 140, 128 MB 201 and 160, 192 MB 209
/// and 175, 400 MB 211 and 177.)
std::int64_t ColdWeightBytes(std::int64_t measured_llc, std::int64_t reported_llc);

/// Through how many bytes weights rotate on a CPU under MeasurePolicy::kWarm, where each comes from the last-level cache as in a
/// small model: twice what all cores hold in front of it, at most half of it.
std::int64_t WarmWeightBytes(const DeviceSpec& device);

/// kWarm where weights of so many bytes are in the last-level cache of `device` when the next pass reads them again: up to half
/// of it, since a pass has more to keep. kCold for 0, unknown.
MeasurePolicy PolicyFor(std::int64_t weight_bytes, const DeviceSpec& device);

struct MeasurerOptions {
  MeasurePolicy policy = MeasurePolicy::kCold;
  /// The last-level cache to exceed; 0 = MeasureLlcBytes on first use, and what the system reports.
  /// On a GPU 0 = its L2.
  std::int64_t llc_bytes = 0;
  /// Limit on the operands held at once; 0 = a quarter of the available memory, on a GPU 4 GiB.
  std::int64_t max_bytes = 0;
  TrialOptions trial = {};
};
/// Measures on `device`, which must outlive it, with its default stream. Cold: what a pass reads
/// from memory (weights, tables, caches; not the activations that the operation before has just
/// written) rotates over copies of ColdWeightBytes together, as many as `max_bytes` allows. Warm, over WarmWeightBytes;
/// on a GPU, whose last level is its L2, there is one copy.
///
/// The check uses random operands (TrialOptions), with padding rows among them. A kernel writes
/// into poisoned memory between guard bands, and its output is compared with the float64 oracle
/// within the tolerance of the types; it runs again in place where the operation allows that, and
/// once more for a bitwise comparison if it claims to be deterministic. Where the oracle would take
/// too long for all rows, some are compared and the others must be finite. An exception that leaves
/// Launch is Verdict::kCrash.
///
/// On a device that captures work and has timers, launches are timed as a captured burst, by the
/// device's clock: what the host takes to submit them is not in their times, as it is not when a
/// model decodes.
///
/// For every operation of this library. For GEMM, whose weights are packed for each kernel, it is
/// MakeCpuGemmMeasurer (tune_gemm.h) where the host can access the device's memory.
template <class Op>
std::unique_ptr<Measurer<Op>> MakeMeasurer(Device& device, const MeasurerOptions& options = {});

/// What any kernel has to read, write and compute for a problem, as MakeMeasurer poses it: every
/// operand once, of a table or a cache only the rows in question.
struct LeastWork {
  double bytes = 0;
  double operations = 0;  ///< multiplications and additions of products and attention
};
template <class Op>
LeastWork LeastWorkOf(const typename Op::Desc& problem, const TrialOptions& options = {});

template <class Op>
struct TuneProblemOf {
  /// A layout may be open: candidates of every layout race, each is recorded under its own.
  typename Op::Desc desc;
  double weight = 1;  ///< relative number of calls; with a short budget, heavy problems come first
};

struct TuneProgress {
  int problem = 0, problems = 0;  ///< `problem` is 0-based, in the order of tuning
  std::string_view op, key;       ///< of the problem: Op::kName and KeyOf
  double fraction = 0;            ///< of all, 0..1; never falls
  double device_seconds = 0;
  std::string best;       ///< the leading kernel, "" at first
  double best_us = 0;     ///< when finished
  bool finished = false;  ///< this problem
};

struct TuneOptions {
  FeasibleOptions feasible;
  RecordScope scope;
  Tuner::Options tuner;       ///< budget_us is per problem here; 0 = shared out of `budget_seconds`
  double budget_seconds = 0;  ///< of device time for all problems; 0 = none
  bool remeasure = false;     ///< also problems whose candidates are all recorded
  /// Times at most that a problem is tuned which a busy machine leaves undecided: again after all
  /// others, while the budget lasts. Once where tuner.budget_us limits every problem.
  int turns = 3;
  const std::atomic<bool>* cancel = nullptr;  ///< may be set by a signal handler; read often
  std::function<void(const TuneProgress&)> progress;
};

struct TuneRow {
  std::string op, problem;   ///< Op::kName and KeyOf
  std::string kernel, spec;  ///< the winner; "" when nothing could be measured
  double us = 0;
  std::string before;    ///< what would have run: the incumbent, else the model's pick
  double before_us = 0;  ///< 0 = not timed
  Tuner::Gain gain;      ///< over `before`
  bool skipped = false;  ///< everything was recorded already
  bool only = false;     ///< one candidate, hence nothing to decide and nothing timed
  bool conclusive = false;
  std::string inconclusive;  ///< why not
  int candidates = 0, timed = 0, quarantined = 0;
  std::string trouble;  ///< why there is no winner, or the records could not be written

  /// Something was timed, and what would have run before stays for now.
  bool undecided() const { return timed > 0 && !conclusive && trouble.empty(); }
};
struct TuneReport {
  std::vector<TuneRow> rows;  ///< in the caller's order
  int tuned = 0, skipped = 0, only = 0, failed = 0, not_reached = 0;
  bool cancelled = false, out_of_budget = false;
  double device_seconds = 0;
  /// As Tuner::reference_us: for the Tuner::Options of the next operation's problems.
  double reference_us = 0;
};

/// Tunes every problem and appends what was measured to `records`, problem by problem, so that a
/// stop at any time loses at most the problem in progress (a cancel keeps even that). All
/// candidates are recorded and the winners marked; failures are quarantined with their evidence.
/// Candidates that are recorded already (same fingerprint, same scope) are not measured again,
/// except for the incumbent, which races new candidates. A problem with one candidate is left out,
/// except for GEMM, whose layouts are chosen by such times. A row is of its problem's last turn
/// (TuneOptions::turns). Fails only for an invalid problem, before anything is measured.
template <class Op>
Result<TuneReport> Tune(std::type_identity_t<std::span<const TuneProblemOf<Op>>> problems,
                        const OpRegistry<Op>& registry, const DeviceSpec& device, Records& records,
                        std::type_identity_t<Measurer<Op>>& measurer, const TuneOptions& options);

}  // namespace tilewright
