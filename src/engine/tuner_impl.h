#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/machine_mode.h"
#include "engine/tuner_stats.h"
#include "tilewright/tuner.h"

namespace tilewright {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One-sided limits of the race are checked after 6, 12, 24 ... blocks, for several rivals at once:
/// 2.6 standard errors keep the chance of dropping the best below one in a hundred over all checks.
constexpr double kRaceZ = 2.6;

/// The state of a session. tuner.cc has the questions and the pruning, tuner_blocks.cc what all
/// phases share and their order, tuner_race.cc the halving and the race, tuner_verify.cc the end.
///
/// Candidates are sorted by name inside, so that the list's order cannot matter; `arm_of` leads
/// back from the caller's indices.
struct Tuner::Impl {
  enum class Phase { kCheck, kFirst, kHalve, kRace, kRecheck, kVerify, kDone };

  struct Arm {
    Candidate candidate;
    int index = 0;  ///< the caller's
    bool kept = false, alive = false;
    int reps = 1;
    std::map<int, double> log_us;    ///< by block
    std::map<int, double> fresh_us;  ///< taken after the selection, by block
    Result result;
  };

  Options options;
  std::vector<Arm> arms;
  std::vector<int> arm_of;  ///< caller's index -> arm
  Phase phase = Phase::kCheck;
  std::vector<int> queue;  ///< arms still to be asked in this block, from the back
  int asked = -1;
  int block = 0;  ///< running number; samples of one block are comparable
  int round = 0, passes_left = 0;
  int race_begin = 0;  ///< first block of the race
  int verify_begin = 0;
  int winner = -1, rival = -1;  ///< of the verification
  int control_of = -1;          ///< whose hidden copy runs; in the queue the copy is Copy()
  std::map<int, double> control_log_us;
  bool disturbed = false;  ///< a sample of this block was
  int dropped = 0;
  std::map<int, double> reference_us;   ///< by block, the longest; of those that were kept
  std::vector<double> reference_times;  ///< of all samples
  bool conclusive = false;
  bool untrusted = false;   ///< the machine was too busy: nothing is replaced
  bool slow_spell = false;  ///< or too slow
  std::string inconclusive;
  Gain gain;
  double spent = 0, progress = 0;
  std::uint64_t random_state = 0;

  Impl(std::vector<Candidate> candidates, const Options& given);
  int Count() const { return static_cast<int>(arms.size()); }
  int Copy() const { return Count(); }
  int Real(int a) const { return a == Copy() ? control_of : a; }
  Arm& At(int a) { return arms[static_cast<std::size_t>(a)]; }
  const Arm& At(int a) const { return arms[static_cast<std::size_t>(a)]; }
  static double Predicted(const Arm& arm);
  // Which candidates are kept; they are checked in the order of what the model expects.
  void Prune();
  // Once checks have taken their share of the budget, those still to come are as if the model had left them out.
  void LeaveUnchecked();
  // Whether two candidates passed that have no times to compare: the budget does not end a session there.
  bool OwesTimes() const;
  int AliveCount() const;
  // The next block: every arm that is alive, in fresh random order (Fisher and Yates).
  void FillQueue();
  void Shuffle();
  // The race's hidden copy is one of the leader; if that drops out, of the new leader.
  void KeepControl();
  void CopyOf(int arm);
  // What a challenger has to beat: the incumbent, else what would run without any record. -1: none.
  int Defender() const;
  // Moves the defender to where it is timed first, so that a session stopped at any point has timed
  // it.
  void DefenderFirst();
  // Median over the blocks from `begin` on of log t, less the block's own median, which removes the
  // drift between blocks.
  double RelativeTime(const Arm& arm, int begin) const;
  // Alive arms from fast to slow; equals stay in the order of their names.
  std::vector<int> Ranking(int begin) const;
  static PairedDifference Paired(const std::map<int, double>& one,
                                 const std::map<int, double>& against, int begin);
  static PairedDifference Paired(const Arm& arm, const Arm& against, int begin);
  // How much the leader and its copy differ; nullopt if there are too few blocks to say.
  std::optional<PairedDifference> ControlDifference() const;
  bool ControlDiffers() const;
  void Distrust(std::string why);
  double FullSpeed() const { return FullSpeedUs(reference_times, options.reference_us); }
  // The blocks from `begin` on with what the reference loop took.
  std::vector<BlockReference> References(int begin) const;
  // A block in which the machine did something else, or was slow, is measured again; its samples are
  // dropped.
  bool DropBlock();
  void Kill(Arm& arm, Verdict verdict, std::string evidence);
  // What a phase does at the end of its block; fills the queue or moves on until there is something
  // to ask.
  void Advance();
  // If all remaining candidates have failed, those that had only been too slow race each other.
  bool Revive();
  static double Quickest(const Arm& arm);
  double QuickestAlive() const;
  // A launch of milliseconds averages over its own spikes, so one sample above twice the limit is
  // enough to drop it.
  void DropSlowest();
  // Sizes the samples and drops hopeless candidates, by the better of two launches, since one alone
  // may have met a spike.
  void AfterFirst();
  void StartRound();
  // Odd, so that the median of a round is one of its samples: a spike among two would decide.
  int Passes() const { return 3 + 2 * round; }
  void AfterRound();
  void AfterRaceBlock();
  // The winner so far, and what it has to beat on fresh samples: the incumbent, else what would run
  // without any tuning.
  void Select();
  // What would run without any tuning is timed once more even if it was dropped for being slow,
  // since the gain over it is reported. Not if a launch takes milliseconds, and not if it failed.
  bool CanReturn(const Arm& arm) const;
  void DistrustControl();
  // Winner, rival and the winner's copy in random order, so that none always follows another.
  void FillVerify();
  void AfterVerify();
  void Finish(bool by_evidence);
  // Times of those that were dropped become what they would have been when the winner was verified, by
  // the blocks that they shared: the machine may have been faster then, and times of one session are compared.
  void CarryOver();
  void StopFor(std::string why);
  // Whether launches of milliseconds were far apart in every block that the two shared: for sessions
  // stopped before there is more evidence.
  bool EvidentlyFaster(const Arm& arm, const Arm& than) const;
  void TakeTime(Arm& arm, double us);
  void AfterFailure(int a);
  std::optional<int> BestArm() const;
};

}  // namespace tilewright
