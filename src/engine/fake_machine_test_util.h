#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/random.h"
#include "tilewright/tuner.h"

namespace tilewright {

/// A machine with known truth: every candidate has a time; the noise is scripted. Common to all
/// candidates: a clock that drifts (AR(1) in the logarithm) and steps; of each sample: jitter and
/// spikes.
class FakeMachine {
 public:
  struct Arm {
    double us = 100;
    double predicted_us = 0;  // 0: the truth
    Verdict check = Verdict::kOk;
    int error_from = -1;  // the n-th timing returns an error
    int wrong_from = -1;  // the n-th check finds wrong numbers
    double bimodal = 1;   // every other sample is this much slower
    bool incumbent = false, fallback = false;
  };
  struct Noise {
    double jitter = 0, drift = 0, spike_chance = 0, spike = 3, first_launch = 1;
    double step_after_us = 1e300, step = 1;  // the clock changes once
    double stall_us = 0;                     // of overhead for each sample
    double check_us = 0;                     // what a check costs
    double busy_chance = 0, busy = 3;        // a neighbour takes part of a sample, and it shows
    // Between these times a unit runs at a fraction of its speed; candidates that use it, all but
    // those named "v...", take longer, and the reference loop shows it.
    double spell_from_us = 1e300, spell_to_us = 1e300, spell = 2.5, reference_us = 0;
  };

  FakeMachine(std::map<std::string, Arm> arms, Noise noise, std::uint64_t seed)
      : arms_(std::move(arms)), noise_(noise), random_(seed) {}

  std::vector<Tuner::Candidate> Candidates(bool reversed = false) const {
    std::vector<Tuner::Candidate> list;
    for (const auto& [name, arm] : arms_) {
      Tuner::Candidate one;
      one.name = name;
      one.predicted_us = arm.predicted_us > 0 ? arm.predicted_us : arm.us;
      one.incumbent = arm.incumbent, one.fallback = arm.fallback;
      list.push_back(std::move(one));
    }
    if (reversed) std::reverse(list.begin(), list.end());
    return list;
  }

  // Plays the session; returns the winner's name, "" for none.
  std::string Play(Tuner& tuner, const std::vector<Tuner::Candidate>& list,
                   int stop_after = 1 << 30) {
    int asked = 0;
    while (const auto ask = tuner.Next()) {
      const std::string& name = list[static_cast<std::size_t>(ask->candidate)].name;
      ++asks[name];
      log.push_back((ask->action == Tuner::Action::kCheck ? "check " : "time ") + name);
      tuner.Notify(ask->action == Tuner::Action::kCheck ? Check(name) : Time(name, ask->reps));
      if (++asked >= stop_after) tuner.Stop();
    }
    const auto best = tuner.Best();
    return best ? list[static_cast<std::size_t>(*best)].name : "";
  }
  std::string Play(const Tuner::Options& options = {}) {
    const auto list = Candidates();
    Tuner tuner(list, options);
    return Play(tuner, list);
  }

  std::map<std::string, int> asks;
  std::vector<std::string> log;
  int errors = 0;  // timings that returned one

 private:
  Tuner::Outcome Check(const std::string& name) {
    const Arm& arm = arms_.at(name);
    const int n = checks_[name]++;
    Tuner::Outcome outcome;
    outcome.verdict = arm.wrong_from >= 0 && n >= arm.wrong_from ? Verdict::kWrong : arm.check;
    if (outcome.verdict != Verdict::kOk) outcome.evidence = "scripted";
    outcome.cost_us = noise_.check_us;
    return outcome;
  }

  Tuner::Outcome Time(const std::string& name, int reps) {
    const Arm& arm = arms_.at(name);
    const int n = timings_[name]++;
    Tuner::Outcome outcome;
    if (arm.error_from >= 0 && n >= arm.error_from) {
      outcome.verdict = Verdict::kError;
      outcome.evidence = "scripted";
      outcome.us = 0.001;
      ++errors;
      return outcome;
    }
    drift_ = 0.97 * drift_ + noise_.drift * std::sqrt(1 - 0.97 * 0.97) * random_.Normal();
    double us = arm.us * std::exp(drift_ + noise_.jitter * random_.Normal());
    if (n == 0) us *= noise_.first_launch;
    if (random_.Uniform() < noise_.spike_chance) us *= noise_.spike;
    if (arm.bimodal != 1 && n % 2 == 1) us *= arm.bimodal;
    if (clock_us_ > noise_.step_after_us) us *= noise_.step;
    if (noise_.busy_chance > 0 && random_.Uniform() < noise_.busy_chance) {
      us *= 1 + (noise_.busy - 1) * random_.Uniform();
      outcome.disturbed = true;
    }
    const bool slow = clock_us_ >= noise_.spell_from_us && clock_us_ < noise_.spell_to_us;
    if (slow && name[0] != 'v') us *= noise_.spell;
    outcome.reference_us = noise_.reference_us * (slow ? noise_.spell : 1);
    if (noise_.reference_us > 0) outcome.reference_us *= std::exp(0.02 * random_.Normal());
    outcome.us = us;
    outcome.cost_us = us * reps + noise_.stall_us;
    clock_us_ += outcome.cost_us;
    return outcome;
  }

  std::map<std::string, Arm> arms_;
  Noise noise_;
  Random random_;
  double drift_ = 0, clock_us_ = 0;
  std::map<std::string, int> checks_, timings_;
};

}  // namespace tilewright
