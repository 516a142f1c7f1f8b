#include <algorithm>
#include <cmath>

#include "engine/tuner_impl.h"

namespace tilewright {
namespace {

constexpr double kVerifyZ = 2.0;

// A gain must be this many times what leader and copy differ by.
constexpr double kControlMargin = 2;

// A launch as long as kLongUs averages over its own spikes. Where a session is stopped early, a challenger
// with such launches that took kEvident of the defender's time or less in each of kFewShared blocks is
// ahead.
constexpr double kLongUs = 1000;
constexpr int kFewShared = 2;
constexpr double kEvident = 0.8;

// Of Student's t with 7 degrees of freedom, 97.5 %: the verification has eight blocks.
constexpr double kGainT = 2.36;

}  // namespace

void Tuner::Impl::Select() {
  const std::vector<int> ranked = Ranking(race_begin);
  winner = ranked.front();
  rival = -1;
  for (int a = 0; a < Count(); ++a) {
    if (At(a).alive && At(a).candidate.incumbent) rival = a;
  }
  for (int a = 0; rival < 0 && a < Count(); ++a) {
    if (At(a).candidate.fallback && CanReturn(At(a))) At(a).alive = true, rival = a;
  }
  if (rival == winner) rival = -1;
  CopyOf(winner);
  phase = Phase::kRecheck;
  queue.assign(1, winner);
  progress = std::max(progress, 0.8);
}

bool Tuner::Impl::CanReturn(const Arm& arm) const {
  return arm.kept && arm.result.verdict == Verdict::kOk && Quickest(arm) <= options.slow_us;
}

void Tuner::Impl::FillVerify() {
  ++block;
  disturbed = false;
  queue.assign({winner, Copy()});
  if (rival >= 0) queue.push_back(rival);
  Shuffle();
  progress =
      std::max(progress, 0.8 + 0.2 * (block - verify_begin) / std::max(1, options.verify_blocks));
}

void Tuner::Impl::AfterVerify() {
  if (ControlDiffers()) DistrustControl();
  // Blocks that were taken before the machine had shown how fast it can be count as well.
  if (const auto spell = SlowSpell(References(race_begin), FullSpeed())) {
    slow_spell = true;
    Distrust(*spell);
  }
  if (rival >= 0 && At(rival).alive) {
    const PairedDifference d = Paired(At(winner), At(rival), verify_begin);
    // The copy's difference is the noise of this machine now.
    const auto control = ControlDifference();
    const double nothing = control ? std::abs(control->mean) : 0;
    const bool apart = d.mean + kVerifyZ * d.error < -options.min_gain;
    if (apart && kControlMargin * nothing >= -d.mean) DistrustControl();
    const bool faster = apart && !untrusted;
    const bool incumbent = At(rival).candidate.incumbent;
    // A fallback has not been chosen by any record: against it the better mean is enough.
    if (incumbent ? !faster : d.mean > 0 || untrusted) {
      std::swap(winner, rival);
    } else {
      gain = {std::exp(-d.mean), std::exp(-d.mean - kGainT * d.error),
              std::exp(-d.mean + kGainT * d.error)};
    }
  }
  Finish(!untrusted);
}

void Tuner::Impl::Finish(bool by_evidence) {
  queue.clear();
  phase = Phase::kDone;
  conclusive = by_evidence && !untrusted && winner >= 0 && At(winner).alive;
  if (!conclusive && inconclusive.empty())
    inconclusive = by_evidence ? "no candidate is left" : "it was stopped";
  progress = 1;
  for (Arm& arm : arms) {
    // If there are several samples, the first one is left out: it includes one-time costs.
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
  if (conclusive) CarryOver();
}

void Tuner::Impl::CarryOver() {
  const Arm& best = At(winner);
  for (Arm& arm : arms) {
    if (&arm == &best || arm.fresh_us.size() >= 3 || arm.result.samples == 0) continue;
    std::map<int, double> later = arm.log_us;
    if (later.size() > 1) later.erase(later.begin());
    std::erase_if(later, [&](const auto& one) { return !best.log_us.contains(one.first); });
    if (later.empty()) continue;
    const PairedDifference d = Paired(later, best.log_us, 0);
    const double factor = best.result.median_us * std::exp(d.mean) / arm.result.median_us;
    arm.result.median_us *= factor, arm.result.low_us *= factor, arm.result.high_us *= factor;
  }
}

bool Tuner::Impl::EvidentlyFaster(const Arm& arm, const Arm& than) const {
  if (Quickest(arm) < kLongUs) return false;
  int shared = 0;
  // Without the first block, which pays for page faults and cold code.
  for (auto at = arm.log_us.upper_bound(1); at != arm.log_us.end(); ++at) {
    const auto other = than.log_us.find(at->first);
    if (other == than.log_us.end()) continue;
    if (at->second - other->second > std::log(kEvident)) return false;
    ++shared;
  }
  return shared >= kFewShared;
}

void Tuner::Impl::StopFor(std::string why) {
  if (inconclusive.empty()) inconclusive = std::move(why);
  Finish(false);
}

std::optional<int> Tuner::Impl::BestArm() const {
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
    const bool ahead = enough && d.mean + kRaceZ * d.error < -options.min_gain;
    if (!ahead && !EvidentlyFaster(At(best), At(defender))) best = defender;
  }
  return best;
}

}  // namespace tilewright
