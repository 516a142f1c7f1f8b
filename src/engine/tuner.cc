#include "tilewright/tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/hash.h"
#include "core/random.h"
#include "core/text.h"
#include "engine/tuner_stats.h"

namespace tilewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One-sided limits of the race are looked at after 6, 12, 24 ... blocks, for several rivals at
// once: 2.6 standard errors keep the chance of throwing out the best below one in a hundred over
// all looks.
constexpr double kRaceZ = 2.6;
constexpr double kVerifyZ = 2.0;

// Leader and copy of the same code differ when the difference is this many standard errors: about
// Student's t with blocks - 1 degrees of freedom, two in ten thousand. Chance hardly ever does it,
// over all looks.
double ControlZ(std::size_t blocks) { return 3.7 * (1 + 6.0 / static_cast<double>(blocks)); }

// A gain must be this many times what leader and copy differ by.
constexpr double kControlMargin = 2;
constexpr int kLeastControlBlocks = 4;  // fewer say nothing about the copy

// Of Student's t with 7 degrees of freedom, 97.5 %: the verification has eight blocks.
constexpr double kGainT = 2.36;

// Problems whose launches take milliseconds get by with less: their samples are long, hence quiet,
// and dear.
constexpr int kSlowTopK = 6, kSlowFinalists = 3, kSlowMaxBlocks = 8, kSlowVerifyBlocks = 4;

// Blocks of single launches at the start: the first pays for page faults and cold code, the second
// for nobody.
constexpr int kFirstBlocks = 2;

}  // namespace

// Candidates are sorted by name inside, so that the list's order cannot matter; `order` leads back
// to the caller's indices.
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
  bool conclusive = false;
  bool untrusted = false;  ///< the machine was too busy: nothing is replaced
  std::string inconclusive;
  Gain gain;
  double spent = 0, progress = 0;
  std::uint64_t random_state = 0;

  Impl(std::vector<Candidate> candidates, const Options& given) : options(given) {
    random_state = options.seed;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      Arm arm;
      arm.candidate = std::move(candidates[i]);
      arm.index = static_cast<int>(i);
      arms.push_back(std::move(arm));
    }
    std::sort(arms.begin(), arms.end(),
              [](const Arm& x, const Arm& y) { return x.candidate.name < y.candidate.name; });
    arm_of.resize(arms.size());
    for (std::size_t a = 0; a < arms.size(); ++a) {
      arm_of[static_cast<std::size_t>(arms[a].index)] = static_cast<int>(a);
      random_state = HashCombine(random_state, Hash64(arms[a].candidate.name));
    }
    Prune();
    for (int a = Count() - 1; a >= 0; --a) {
      if (At(a).kept) queue.push_back(a);
    }
    DefenderFirst();
    if (queue.empty()) phase = Phase::kDone;
  }

  int Count() const { return static_cast<int>(arms.size()); }
  int Copy() const { return Count(); }
  int Real(int a) const { return a == Copy() ? control_of : a; }
  Arm& At(int a) { return arms[static_cast<std::size_t>(a)]; }
  const Arm& At(int a) const { return arms[static_cast<std::size_t>(a)]; }

  static double Predicted(const Arm& arm) {
    const double us = arm.candidate.predicted_us;
    return us > 0 && std::isfinite(us) ? us : kInfinity;
  }

  void Prune() {
    std::vector<int> ranked(arms.size());
    for (int a = 0; a < Count(); ++a) ranked[static_cast<std::size_t>(a)] = a;
    std::stable_sort(ranked.begin(), ranked.end(),
                     [this](int x, int y) { return Predicted(At(x)) < Predicted(At(y)); });
    // Measured against the second: one kernel whose model is far too hopeful must not shut out all
    // others.
    const double limit =
        ranked.empty() ? kInfinity
                       : options.max_predicted *
                             Predicted(At(ranked[std::min<std::size_t>(1, ranked.size() - 1)]));
    const bool slow = !ranked.empty() && std::isfinite(Predicted(At(ranked.front()))) &&
                      Predicted(At(ranked.front())) > options.slow_us;
    const int top_k = slow ? std::min(options.top_k, kSlowTopK) : options.top_k;
    std::map<int, bool> led;
    int kept = 0;
    for (const int a : ranked) {
      Arm& arm = At(a);
      const bool known_slow = std::isfinite(Predicted(arm)) && Predicted(arm) > limit;
      const bool leads = !known_slow && !std::exchange(led[arm.candidate.group], true);
      arm.kept = arm.candidate.incumbent || arm.candidate.fallback || leads ||
                 (!known_slow && kept < top_k);
      arm.alive = arm.kept;
      kept += arm.kept ? 1 : 0;
    }
  }

  int AliveCount() const {
    return static_cast<int>(
        std::count_if(arms.begin(), arms.end(), [](const Arm& arm) { return arm.alive; }));
  }

  // The next block: every arm that is alive, in fresh random order (Fisher and Yates).
  void FillQueue() {
    queue.clear();
    for (int a = 0; a < Count(); ++a) {
      if (At(a).alive) queue.push_back(a);
    }
    if (phase == Phase::kRace) {
      KeepControl();
      queue.push_back(Copy());
    }
    Shuffle();
    disturbed = false;
    if (++block == 1) DefenderFirst();
  }

  void Shuffle() {
    for (std::size_t i = queue.size(); i > 1; --i)
      std::swap(queue[i - 1], queue[SplitMix64(random_state) % i]);
  }

  // The race's copy is of who leads; when that one is out, of who leads then.
  void KeepControl() {
    if (control_of >= 0 && At(control_of).alive) return;
    const bool raced = block >= race_begin && race_begin > 0;
    CopyOf(Ranking(raced ? race_begin : 0).front());
  }
  void CopyOf(int arm) {
    control_of = arm;
    control_log_us.clear();
  }

  // Whom a challenger has to beat: the incumbent, else what would run without any record. -1 for
  // none.
  int Defender() const {
    int defender = -1;
    for (int a = 0; a < Count(); ++a) {
      if (!At(a).kept || At(a).result.verdict != Verdict::kOk) continue;
      if (At(a).candidate.incumbent) return a;
      if (At(a).candidate.fallback) defender = a;
    }
    return defender;
  }

  // The queue's end is asked first: wherever the session is stopped, nothing was timed before the
  // defender.
  void DefenderFirst() {
    const auto at = std::find(queue.begin(), queue.end(), Defender());
    if (at != queue.end()) std::rotate(at, at + 1, queue.end());
  }

  // Median over the blocks from `begin` on of log t, less the block's own median: the drift of the
  // blocks falls out.
  double RelativeTime(const Arm& arm, int begin) const {
    std::vector<double> relative;
    for (const auto& [b, log_us] : arm.log_us) {
      if (b < begin) continue;
      std::vector<double> peers;
      for (const Arm& other : arms) {
        const auto found = other.log_us.find(b);
        if (other.alive && found != other.log_us.end()) peers.push_back(found->second);
      }
      relative.push_back(log_us - Median(std::move(peers)));
    }
    return relative.empty() ? kInfinity : Median(std::move(relative));
  }

  // Alive arms from fast to slow; equals stay in the order of their names.
  std::vector<int> Ranking(int begin) const {
    std::vector<std::pair<double, int>> ranked;
    for (int a = 0; a < Count(); ++a) {
      if (At(a).alive) ranked.emplace_back(RelativeTime(At(a), begin), a);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& x, const auto& y) { return x.first < y.first; });
    std::vector<int> order;
    for (const auto& entry : ranked) order.push_back(entry.second);
    return order;
  }

  static PairedDifference Paired(const std::map<int, double>& one,
                                 const std::map<int, double>& against, int begin) {
    std::vector<double> differences;
    for (const auto& [b, log_us] : one) {
      const auto other = against.find(b);
      if (b >= begin && other != against.end()) differences.push_back(log_us - other->second);
    }
    return TrimmedMean(std::move(differences));
  }
  static PairedDifference Paired(const Arm& arm, const Arm& against, int begin) {
    return Paired(arm.log_us, against.log_us, begin);
  }

  // What two candidates that are one differ by; `none` where that was not looked at enough.
  std::optional<PairedDifference> ControlDifference() const {
    if (control_of < 0 || static_cast<int>(control_log_us.size()) < kLeastControlBlocks)
      return std::nullopt;
    return Paired(control_log_us, At(control_of).log_us, control_log_us.begin()->first);
  }
  bool ControlDiffers() const {
    const auto d = ControlDifference();
    return d && std::abs(d->mean) > options.epsilon &&
           std::abs(d->mean) > ControlZ(control_log_us.size()) * d->error;
  }

  void Distrust(std::string why) {
    untrusted = true;
    if (inconclusive.empty()) inconclusive = std::move(why);
  }

  // A block in which the machine did something else is taken again: none of its samples stands.
  bool DropBlock() {
    if (!std::exchange(disturbed, false)) return false;
    if (dropped >= options.max_dropped) {
      Distrust(Format("the machine was busy with something else in more than {} blocks of samples",
                      options.max_dropped));
      return false;
    }
    ++dropped;
    for (Arm& arm : arms) {
      arm.log_us.erase(block);
      arm.fresh_us.erase(block);
    }
    control_log_us.erase(block);
    --block;
    if (phase == Phase::kVerify) {
      FillVerify();
    } else {
      FillQueue();
    }
    return true;
  }

  void Kill(Arm& arm, Verdict verdict, std::string evidence) {
    arm.alive = false;
    arm.result.verdict = verdict;
    arm.result.evidence = std::move(evidence);
  }

  // What a phase does when its block is through; fills the queue or moves on until there is
  // something to ask.
  void Advance() {
    while (queue.empty() && phase != Phase::kDone) {
      if (AliveCount() == 0) {
        if (!Revive()) Finish(true);
        continue;
      }
      if (DropBlock()) continue;
      switch (phase) {
        case Phase::kCheck:
          phase = Phase::kFirst;
          FillQueue();
          break;
        case Phase::kFirst:
          if (block < kFirstBlocks) {
            DropSlowest();
            FillQueue();
          } else {
            AfterFirst();
          }
          break;
        case Phase::kHalve:
          if (--passes_left > 0) {
            FillQueue();
          } else {
            AfterRound();
          }
          break;
        case Phase::kRace:
          AfterRaceBlock();
          break;
        case Phase::kRecheck:
          phase = Phase::kVerify;
          verify_begin = block + 1;
          FillVerify();
          break;
        case Phase::kVerify:
          if (block - verify_begin + 1 < options.verify_blocks) {
            FillVerify();
          } else {
            AfterVerify();
          }
          break;
        case Phase::kDone:
          break;
      }
    }
  }

  // All that were still in it broke: those that had only been too slow race among themselves.
  bool Revive() {
    for (Arm& arm : arms)
      arm.alive = arm.kept && arm.result.verdict == Verdict::kOk && !arm.log_us.empty();
    if (AliveCount() == 0) return false;
    rival = -1;
    phase = Phase::kRace;
    race_begin = block + 1;
    FillQueue();
    return true;
  }

  static double Quickest(const Arm& arm) {
    double us = kInfinity;
    for (const auto& [b, log_us] : arm.log_us) us = std::min(us, std::exp(log_us));
    return us;
  }
  double QuickestAlive() const {
    double best = kInfinity;
    for (const Arm& arm : arms) {
      if (arm.alive) best = std::min(best, Quickest(arm));
    }
    return best;
  }

  // A launch of milliseconds averages over its own spikes: twice the limit is hopeless at the first
  // sight.
  void DropSlowest() {
    const double best = QuickestAlive();
    for (Arm& arm : arms) {
      const double us = Quickest(arm);
      if (arm.alive && std::isfinite(us) && us > options.slow_us &&
          us > 2 * options.give_up * best && !arm.candidate.incumbent) {
        arm.alive = false;
      }
    }
  }

  // Sizes the samples and throws out the hopeless, by the better of two launches: one alone may
  // have met a spike.
  void AfterFirst() {
    const double best = QuickestAlive();
    if (best > options.slow_us) {
      options.finalists = std::min(options.finalists, kSlowFinalists);
      options.max_blocks = std::min(options.max_blocks, kSlowMaxBlocks);
      options.verify_blocks = std::min(options.verify_blocks, kSlowVerifyBlocks);
    }
    for (Arm& arm : arms) {
      const double us = Quickest(arm);
      if (us > options.give_up * best && !arm.candidate.incumbent) arm.alive = false;
      arm.reps = static_cast<int>(
          std::clamp(options.sample_us / us, 1.0, static_cast<double>(options.max_reps)));
    }
    progress = std::max(progress, 0.2);
    round = 0;
    StartRound();
  }

  void StartRound() {
    if (AliveCount() == 1) {  // nobody to race: only its time is wanted
      race_begin = 0;
      Select();
      return;
    }
    if (AliveCount() <= options.finalists) {
      phase = Phase::kRace;
      race_begin = block + 1;
      FillQueue();
      return;
    }
    phase = Phase::kHalve;
    passes_left = Passes();
    FillQueue();
  }

  // Odd, so that the median of a round is one of its samples: a spike among two would decide.
  int Passes() const { return 3 + 2 * round; }

  void AfterRound() {
    const std::vector<int> ranked = Ranking(block - Passes() + 1);
    const int keep = std::max(options.finalists, static_cast<int>(ranked.size() + 2) / 3);
    for (int i = keep; i < static_cast<int>(ranked.size()); ++i) {
      Arm& arm = At(ranked[static_cast<std::size_t>(i)]);
      if (!arm.candidate.incumbent) arm.alive = false;
    }
    ++round;
    progress = std::max(progress, 0.4);
    // An incumbent kept beyond the limit must not hold the rounds up for ever.
    if (AliveCount() > options.finalists + 1) {
      StartRound();
    } else {
      phase = Phase::kRace;
      race_begin = block + 1;
      FillQueue();
    }
  }

  void AfterRaceBlock() {
    const int blocks = block - race_begin + 1;
    progress = std::max(progress, 0.4 + 0.4 * blocks / std::max(1, options.max_blocks));
    const bool last = blocks >= options.max_blocks;
    const bool look = last || blocks == 6 || blocks == 12 || blocks == 24 || blocks == 48;
    if (!look) {
      FillQueue();
      return;
    }
    const int leader = Ranking(race_begin).front();
    if (ControlDiffers()) DistrustControl();
    bool open = false;
    for (int a = 0; a < Count(); ++a) {
      Arm& arm = At(a);
      if (!arm.alive || a == leader) continue;
      const PairedDifference d = Paired(arm, At(leader), race_begin);
      if (d.mean - kRaceZ * d.error > 0) {
        if (!arm.candidate.incumbent) arm.alive = false;
      } else if (d.mean + kRaceZ * d.error >= options.epsilon) {
        open = true;  // neither beaten nor shown to be an equal
      }
    }
    if (open && !last && AliveCount() > 1) {
      FillQueue();
      return;
    }
    Select();
  }

  // The winner so far, and whom it has to beat on fresh samples: the incumbent, else what would run
  // without any tuning.
  void Select() {
    const std::vector<int> ranked = Ranking(race_begin);
    winner = ranked.front();
    rival = -1;
    for (int a = 0; a < Count(); ++a) {
      if (At(a).alive && At(a).candidate.incumbent) rival = a;
    }
    for (int a = 0; rival < 0 && a < Count(); ++a) {
      if (At(a).alive && At(a).candidate.fallback) rival = a;
    }
    if (rival == winner) rival = -1;
    CopyOf(winner);
    phase = Phase::kRecheck;
    queue.assign(1, winner);
    progress = std::max(progress, 0.8);
  }

  void DistrustControl() {
    Distrust(Format("two copies of one kernel differ by {:.1f} %",
                    100 * std::abs(std::expm1(ControlDifference()->mean))));
  }

  // Winner, rival and the winner's copy in random order, so that none always follows another.
  void FillVerify() {
    ++block;
    disturbed = false;
    queue.assign({winner, Copy()});
    if (rival >= 0) queue.push_back(rival);
    Shuffle();
    progress =
        std::max(progress, 0.8 + 0.2 * (block - verify_begin) / std::max(1, options.verify_blocks));
  }

  void AfterVerify() {
    if (ControlDiffers()) DistrustControl();
    if (rival >= 0 && At(rival).alive) {
      const PairedDifference d = Paired(At(winner), At(rival), verify_begin);
      // The copy's difference is what this machine makes of nothing at all, now.
      const auto control = ControlDifference();
      const double nothing = control ? std::abs(control->mean) : 0;
      const bool apart = d.mean + kVerifyZ * d.error < -options.min_gain;
      if (apart && kControlMargin * nothing >= -d.mean) DistrustControl();
      const bool faster = apart && !untrusted;
      const bool incumbent = At(rival).candidate.incumbent;
      // A fallback is nobody's choice yet: against it the better mean is enough.
      if (incumbent ? !faster : d.mean > 0 || untrusted) {
        std::swap(winner, rival);
      } else {
        gain = {std::exp(-d.mean), std::exp(-d.mean - kGainT * d.error),
                std::exp(-d.mean + kGainT * d.error)};
      }
    }
    Finish(!untrusted);
  }

  void Finish(bool by_evidence) {
    queue.clear();
    phase = Phase::kDone;
    conclusive = by_evidence && !untrusted && winner >= 0 && At(winner).alive;
    if (!conclusive && inconclusive.empty())
      inconclusive = by_evidence ? "no candidate is left" : "it was stopped";
    progress = 1;
    for (Arm& arm : arms) {
      // One sample out of two or more is the first one, which paid for what is only paid once.
      std::vector<double> us;
      for (const auto& [b, log_us] : arm.log_us) us.push_back(std::exp(log_us));
      if (us.size() > 1) us.erase(us.begin());
      if (arm.fresh_us.size() >= 3) {
        us.clear();
        for (const auto& [b, fresh] : arm.fresh_us) us.push_back(fresh);
      }
      const MedianInterval interval = IntervalOf(us);
      arm.result.samples = static_cast<int>(us.size());
      arm.result.median_us = interval.median, arm.result.low_us = interval.low,
      arm.result.high_us = interval.high;
    }
  }

  void StopFor(std::string why) {
    if (inconclusive.empty()) inconclusive = std::move(why);
    Finish(false);
  }

  void TakeTime(Arm& arm, double us) {
    arm.log_us[block] = std::log(us);
    if (phase == Phase::kVerify) arm.fresh_us[block] = us;
  }

  void AfterFailure(int a) {
    if (a == control_of) std::erase(queue, Copy());
    if (phase == Phase::kRecheck || phase == Phase::kVerify) {
      // The winner broke when it was about to win: the next in the ranking takes its place.
      if (a == rival) {
        rival = -1;
        return;
      }
      queue.clear();
      if (AliveCount() > 0) Select();  // else Advance revives
    }
  }

  std::optional<int> BestArm() const {
    if (phase == Phase::kDone && conclusive) return winner;
    // Nothing is replaced on the evidence of a busy machine.
    if (untrusted && Defender() >= 0 && !At(Defender()).log_us.empty()) return Defender();
    if (untrusted && phase == Phase::kDone && winner >= 0 && At(winner).alive) return winner;
    // Stopped early: the defender unless a challenger is clearly ahead in the blocks they share.
    const int defender = Defender();
    if (defender >= 0 && At(defender).log_us.empty()) return std::nullopt;
    int best = -1;
    double best_time = kInfinity;
    for (int a = 0; a < Count(); ++a) {
      const Arm& arm = At(a);
      if (!arm.kept || arm.result.verdict != Verdict::kOk || arm.log_us.empty()) continue;
      std::vector<double> logs;
      for (const auto& [b, log_us] : arm.log_us) logs.push_back(log_us);
      if (logs.size() > 1) logs.erase(logs.begin());
      const double time = Median(std::move(logs));
      if (time < best_time) best_time = time, best = a;
    }
    if (best < 0) return std::nullopt;
    if (defender >= 0 && defender != best) {
      const PairedDifference d = Paired(At(best), At(defender), kFirstBlocks + 1);
      const bool enough = static_cast<int>(At(defender).log_us.size()) >= kFirstBlocks + 6;
      if (!enough || !(d.mean + kRaceZ * d.error < -options.min_gain)) best = defender;
    }
    return best;
  }
};

Tuner::Tuner(std::vector<Candidate> candidates, const Options& options)
    : impl_(std::make_unique<Impl>(std::move(candidates), options)) {}
Tuner::~Tuner() = default;
Tuner::Tuner(Tuner&&) noexcept = default;
Tuner& Tuner::operator=(Tuner&&) noexcept = default;

std::optional<Tuner::Ask> Tuner::Next() {
  Impl& t = *impl_;
  if (t.asked >= 0) return std::nullopt;  // the last question has no answer yet
  if (t.phase != Impl::Phase::kDone && t.options.budget_us > 0 && t.spent >= t.options.budget_us)
    t.StopFor("the budget ran out");
  t.Advance();
  if (t.phase == Impl::Phase::kDone) return std::nullopt;
  t.asked = t.queue.back();
  t.queue.pop_back();
  const bool check = t.phase == Impl::Phase::kCheck || t.phase == Impl::Phase::kRecheck;
  const Impl::Arm& arm = t.At(t.Real(t.asked));
  return Ask{check ? Action::kCheck : Action::kTime, arm.index, check ? 1 : arm.reps};
}

void Tuner::Notify(const Outcome& outcome) {
  Impl& t = *impl_;
  if (t.asked < 0) return;
  const int asked = std::exchange(t.asked, -1), a = t.Real(asked);
  Impl::Arm& arm = t.At(a);
  const bool check = t.phase == Impl::Phase::kCheck || t.phase == Impl::Phase::kRecheck;
  arm.result.tried = !outcome.skipped;
  t.spent +=
      outcome.cost_us > 0 ? outcome.cost_us : (check ? 0 : std::max(0.0, outcome.us) * arm.reps);
  if (outcome.skipped) {
    arm.alive = false;
    arm.log_us.clear();
    t.AfterFailure(a);
  } else if (outcome.verdict != Verdict::kOk) {
    t.Kill(arm, outcome.verdict, outcome.evidence);
    t.AfterFailure(a);
  } else if (!check) {
    // A time of nothing is a measurement that did not happen, whatever the reason.
    if (outcome.us > 0 && std::isfinite(outcome.us)) {
      t.disturbed = t.disturbed || outcome.disturbed;
      if (asked == t.Copy()) {
        t.control_log_us[t.block] = std::log(outcome.us);
      } else {
        t.TakeTime(arm, outcome.us);
      }
    } else {
      t.Kill(arm, Verdict::kError, "its time was not a positive number");
      t.AfterFailure(a);
    }
  }
  if (t.phase == Impl::Phase::kCheck && !t.arms.empty()) {
    t.progress = std::max(t.progress, 0.1);
  }
}

void Tuner::Stop() {
  if (impl_->phase != Impl::Phase::kDone) impl_->StopFor("it was stopped");
  impl_->asked = -1;
}

std::optional<int> Tuner::Best() const {
  const auto best = impl_->BestArm();
  if (!best) return std::nullopt;
  return impl_->At(*best).index;
}

bool Tuner::conclusive() const { return impl_->conclusive; }
const std::string& Tuner::inconclusive() const {
  static const std::string kNothing;
  return impl_->phase == Impl::Phase::kDone && !impl_->conclusive ? impl_->inconclusive : kNothing;
}
int Tuner::dropped() const { return impl_->dropped; }
Tuner::Gain Tuner::gain() const { return impl_->conclusive ? impl_->gain : Gain{}; }
double Tuner::spent_us() const { return impl_->spent; }
double Tuner::progress() const { return impl_->progress; }

const Tuner::Result& Tuner::result(int candidate) const {
  return impl_->At(impl_->arm_of[static_cast<std::size_t>(candidate)]).result;
}

}  // namespace tilewright
