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

}  // namespace tilewright
