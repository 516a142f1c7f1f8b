#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tilewright/records.h"

namespace tilewright {

/// Decides what to measure next and which candidate wins; measures and launches nothing itself.
///
/// The path of one problem: prune by the model -> check every candidate against the oracle, the most
/// promising first; with a budget until half of it is spent and two have passed, so that some are timed -> halve
/// with interleaved passes -> race the rest in paired blocks against the leader -> verify winner
/// and incumbent on fresh samples. Times are compared only within blocks, so that clock drift or a
/// neighbour on the host affects all candidates alike. The incumbent stays unless a challenger is
/// faster by more than the noise and by more than `min_gain`. Best() is valid whenever the session
/// is stopped.
///
/// Two guards against a busy machine: a block with a disturbed sample (Outcome::disturbed) is
/// dropped and measured again, up to `max_dropped` times. And a hidden copy of the leader takes
/// part in the race and in the verification: any difference between the two is noise, whatever the
/// error estimate says. If disturbed blocks had to be kept, or leader and copy differ, the session
/// is inconclusive and the previous choice stays.
///
/// A third against a machine that has several speeds, as shared hosts whose AMX units run at 40 % for
/// seconds: with each sample may come what a reference loop took beside it (Outcome::reference_us).
/// A block that is slow by that is dropped as a disturbed one is, and a session that rests on slow
/// blocks is inconclusive: in such a spell units slow down by different factors, so it would decide
/// wrongly, not only late.
///
/// The same candidates, options and outcomes give the same questions and the same answer, whatever
/// the order of the candidates. Not thread-safe.
class Tuner {
 public:
  struct Candidate {
    std::string name;         ///< unique; breaks ties. The kernel's, up to the first space
    double predicted_us = 0;  ///< by the model; 0 or less = unknown, sorted last
    int group = 0;  ///< from Cluster(); each group's best candidate by the model is always measured
    bool incumbent = false;  ///< the choice of earlier records
    bool fallback = false;   ///< what would run without any record; always measured
  };
  struct Options {
    /// Candidates kept by the model, besides group leaders, incumbent, fallback. Kernels with many
    /// configurations leave room for others.
    int top_k = 16;
    /// Not tried: above this multiple of the best prediction for another kernel than the first.
    double max_predicted = 8;
    double give_up = 3;   ///< not timed again: above this multiple of the best first sample
    int finalists = 6;    ///< halving stops at this many
    int max_blocks = 24;  ///< of the race
    int verify_blocks = 8;
    double epsilon = 0.005;   ///< candidates closer than this are considered equal
    double min_gain = 0.005;  ///< what a challenger must gain to replace the incumbent
    double slow_us = 5000;    ///< problems with longer launches get fewer candidates and blocks
    double sample_us = 500;   ///< launches are repeated until a sample takes about this long
    int max_reps = 2000;
    double budget_us = 0;  ///< of device time; 0 = unlimited
    int max_dropped = 24;  ///< disturbed or slow blocks measured again; more: inconclusive
    /// What the reference loop takes at full speed, by earlier sessions; 0: unknown.
    double reference_us = 0;
    std::uint64_t seed = 1;
  };

  enum class Action : std::uint8_t {
    kCheck,  ///< launch once into poisoned memory and compare with the oracle
    kTime,   ///< launch `reps` times in a row and report the mean
  };
  struct Ask {
    Action action = Action::kCheck;
    int candidate = 0;  ///< index into the constructor's list
    int reps = 1;
    int block = 0;  ///< kTime: running number from 1; samples of one block are compared
  };
  /// The result of the last Ask.
  struct Outcome {
    Verdict verdict = Verdict::kOk;
    std::string evidence;  ///< for a verdict other than kOk
    double us = 0;         ///< kTime: time of one launch
    double cost_us = 0;    ///< device time charged to the budget; 0 = us * reps
    /// kTime: the machine was busy with something else (workers lost their processors, the host
    /// stole time).
    bool disturbed = false;
    /// kTime: what a loop of fixed work took beside the sample; 0: there was none.
    double reference_us = 0;
    /// Could not be tried for a reason unrelated to the candidate (no memory): it leaves the
    /// session without a verdict.
    bool skipped = false;
  };

  Tuner(std::vector<Candidate> candidates, const Options& options);
  ~Tuner();
  Tuner(Tuner&&) noexcept;
  Tuner& operator=(Tuner&&) noexcept;

  /// The next question; nullopt once decided, out of budget, or stopped. Each question must be
  /// answered by one Notify.
  std::optional<Ask> Next();
  void Notify(const Outcome& outcome);
  /// Ends the session: Next returns nullopt from now on.
  void Stop();

  /// Index of the best candidate known so far: the incumbent unless beaten; nullopt if none has a
  /// time.
  std::optional<int> Best() const;
  /// True if decided by evidence; false if the budget ran out, Stop was called, or the machine was
  /// too busy to tell.
  bool conclusive() const;
  /// Why the session is not conclusive, as text; "" if it is, or while it runs.
  const std::string& inconclusive() const;
  /// Number of disturbed or slow blocks that were dropped.
  int dropped() const;
  /// What the reference loop takes at full speed, by this session and Options::reference_us; 0:
  /// unknown.
  double reference_us() const;
  /// Whether the session is inconclusive for that reason.
  bool in_slow_spell() const;
  /// How many times faster Best() is than what it had to beat (the incumbent or fallback), by
  /// paired blocks of fresh samples, with a 95 % interval. 0 if there was no such comparison,
  /// because Best() is what would have run anyway or the verification was not reached.
  struct Gain {
    double ratio = 0, low = 0, high = 0;
  };
  Gain gain() const;
  double spent_us() const;
  /// 0..1, for a progress bar; never decreases.
  double progress() const;

  /// What is known of a candidate.
  struct Result {
    bool tried = false;  ///< checked or timed; false = pruned by the model
    Verdict verdict = Verdict::kOk;
    std::string evidence;
    int samples = 0;
    /// For the winner and the incumbent, from samples taken after the selection.
    double median_us = 0, low_us = 0, high_us = 0;
  };
  const Result& result(int candidate) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
