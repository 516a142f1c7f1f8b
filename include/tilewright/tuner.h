#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewright/dispatch_cache.h"
#include "tilewright/executor.h"
#include "tilewright/gemm_stages.h"
#include "tilewright/records.h"

namespace tilewright {

/// Decides what to measure next and which candidate wins; measures and launches nothing itself.
///
/// The path of one problem: prune by the model -> check every candidate against the oracle -> halve
/// with interleaved passes -> race the rest in paired blocks against the leader -> verify winner
/// and incumbent on fresh samples. Times are compared inside blocks only, so that a drift of the
/// clock or a neighbour on the host shifts all candidates alike. The incumbent stays unless a
/// challenger is faster by more than the noise and more than `min_gain`. Whenever it is stopped,
/// Best() is valid.
///
/// Two guards against a machine that does something else as well. A block with a disturbed sample
/// (Outcome::disturbed) is dropped and taken again, until too many were. And a hidden copy of the
/// leader runs in the race and in the verification as one more candidate: what it differs by is
/// noise, whatever the error estimate says. Where blocks had to be kept though disturbed, or leader
/// and copy differ, the session is inconclusive and whatever would have run before stays.
///
/// The same candidates, options and outcomes give the same questions and the same answer, whatever
/// order the candidates came in. Not thread-safe.
class Tuner {
 public:
  struct Candidate {
    std::string name;         ///< unique; orders equals
    double predicted_us = 0;  ///< by the model; 0 or less = unknown, sorted last
    int group = 0;  ///< of Cluster(): the first by the model of every group is always measured
    bool incumbent = false;  ///< what earlier records chose
    bool fallback = false;   ///< what would run without any record; always measured
  };
  struct Options {
    int top_k = 16;  ///< candidates kept by the model, beside group leaders, incumbent and fallback
    double max_predicted = 8;  ///< times the second best prediction: slower ones are not tried
    double give_up = 3;        ///< times the best first sample: slower ones are not timed again
    int finalists = 6;         ///< halving stops at this many
    int max_blocks = 24;       ///< of the race
    int verify_blocks = 8;
    double epsilon = 0.005;   ///< candidates closer than this are equals
    double min_gain = 0.005;  ///< what a challenger must gain to replace the incumbent
    double slow_us = 5000;    ///< launches longer than this get fewer candidates and fewer blocks
    double sample_us = 500;   ///< launches are repeated until a sample takes about this
    int max_reps = 2000;
    double budget_us = 0;  ///< of device time, 0 = none
    int max_dropped =
        24;  ///< disturbed blocks taken again; later ones count, and nothing is decided
    std::uint64_t seed = 1;
  };

  enum class Action : std::uint8_t {
    kCheck,  ///< launch once into poisoned memory and compare with the oracle
    kTime,   ///< launch `reps` times in a row and tell the mean
  };
  struct Ask {
    Action action = Action::kCheck;
    int candidate = 0;  ///< index into the constructor's list
    int reps = 1;
  };
  /// What came of the last Ask.
  struct Outcome {
    Verdict verdict = Verdict::kOk;
    std::string evidence;    ///< of a verdict other than kOk
    double us = 0;           ///< kTime: of one launch
    double cost_us = 0;      ///< of device time, to the budget; 0 = us * reps
    bool disturbed = false;  ///< kTime: the machine did something else meanwhile (the workers lost
                             ///< their processors, the host took time)
    bool skipped = false;    ///< could not be tried for a reason that is not the candidate's (no
                             ///< memory): out of this session, no verdict
  };

  Tuner(std::vector<Candidate> candidates, const Options& options);
  ~Tuner();
  Tuner(Tuner&&) noexcept;
  Tuner& operator=(Tuner&&) noexcept;

  /// The next question; nullopt when decided, out of budget, or stopped. Every answer must be
  /// followed by one Notify.
  std::optional<Ask> Next();
  void Notify(const Outcome& outcome);
  /// Ends the session: Next returns nullopt from now on.
  void Stop();

  /// Index of the best candidate as far as is known: the incumbent unless beaten; nullopt when none
  /// has a time.
  std::optional<int> Best() const;
  /// True when decided by evidence, false when budget or Stop came first or the machine was too
  /// busy to tell.
  bool conclusive() const;
  /// Why it is not conclusive, for people; "" when it is, or while it runs.
  const std::string& inconclusive() const;
  /// Disturbed blocks that were dropped.
  int dropped() const;
  /// How many times faster Best() is than what it had to beat, the incumbent or fallback, by paired
  /// blocks of fresh samples; with a 95 % interval. 0 where there was no such comparison: Best() is
  /// what would have run, or the verification was not reached.
  struct Gain {
    double ratio = 0, low = 0, high = 0;
  };
  Gain gain() const;
  double spent_us() const;
  /// 0..1, for a progress bar; never falls.
  double progress() const;

  /// What is known of a candidate.
  struct Result {
    bool tried = false;  ///< checked or timed; false = pruned by the model
    Verdict verdict = Verdict::kOk;
    std::string evidence;
    int samples = 0;
    double median_us = 0, low_us = 0,
           high_us = 0;  ///< the winner's and incumbent's from samples taken after the selection
  };
  const Result& result(int candidate) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

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
