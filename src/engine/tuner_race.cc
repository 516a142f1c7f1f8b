#include <algorithm>

#include "core/text.h"
#include "engine/tuner_impl.h"

namespace tilewright {
namespace {

// Problems whose launches take milliseconds get less: their samples are long, hence less noisy, and
// expensive.
constexpr int kSlowFinalists = 3, kSlowMaxBlocks = 8, kSlowVerifyBlocks = 4;

// Leader and copy of the same code differ when the difference is this many standard errors: about
// Student's t with blocks - 1 degrees of freedom, two in ten thousand. Over all comparisons, chance
// hardly ever causes that.
double ControlZ(std::size_t blocks) { return 3.7 * (1 + 6.0 / static_cast<double>(blocks)); }

constexpr int kLeastControlBlocks = 4;  // fewer say nothing about the copy

}  // namespace

double Tuner::Impl::Quickest(const Arm& arm) {
  double us = kInfinity;
  for (const auto& [b, log_us] : arm.log_us) us = std::min(us, std::exp(log_us));
  return us;
}

double Tuner::Impl::QuickestAlive() const {
  double best = kInfinity;
  for (const Arm& arm : arms) {
    if (arm.alive) best = std::min(best, Quickest(arm));
  }
  return best;
}

void Tuner::Impl::DropSlowest() {
  const double best = QuickestAlive();
  for (Arm& arm : arms) {
    const double us = Quickest(arm);
    if (arm.alive && std::isfinite(us) && us > options.slow_us && us > 2 * options.give_up * best &&
        !arm.candidate.incumbent) {
      arm.alive = false;
    }
  }
}

void Tuner::Impl::AfterFirst() {
  const double best = QuickestAlive();
  if (best > options.slow_us) {
    options.finalists = std::min(options.finalists, kSlowFinalists);
    options.max_blocks = std::min(options.max_blocks, kSlowMaxBlocks);
    options.verify_blocks = std::min(options.verify_blocks, kSlowVerifyBlocks);
  }
  for (Arm& arm : arms) {
    const double us = Quickest(arm);
    if (us > options.give_up * best && !arm.candidate.incumbent) arm.alive = false;
    arm.reps = RepsOf(us, options.sample_us, options.max_reps);
  }
  progress = std::max(progress, 0.2);
  round = 0;
  StartRound();
}

void Tuner::Impl::StartRound() {
  if (AliveCount() == 1) {  // no rival: only its time is needed
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

void Tuner::Impl::AfterRound() {
  const std::vector<int> ranked = Ranking(block - Passes() + 1);
  const int keep = std::max(options.finalists, static_cast<int>(ranked.size() + 2) / 3);
  for (int i = keep; i < static_cast<int>(ranked.size()); ++i) {
    Arm& arm = At(ranked[static_cast<std::size_t>(i)]);
    if (!arm.candidate.incumbent) arm.alive = false;
  }
  ++round;
  progress = std::max(progress, 0.4);
  // An incumbent kept beyond the limit must not delay the rounds forever.
  if (AliveCount() > options.finalists + 1) {
    StartRound();
  } else {
    phase = Phase::kRace;
    race_begin = block + 1;
    FillQueue();
  }
}

void Tuner::Impl::KeepControl() {
  if (control_of >= 0 && At(control_of).alive) return;
  const bool raced = block >= race_begin && race_begin > 0;
  CopyOf(Ranking(raced ? race_begin : 0).front());
}

void Tuner::Impl::CopyOf(int arm) {
  control_of = arm;
  control_log_us.clear();
}

std::optional<PairedDifference> Tuner::Impl::ControlDifference() const {
  if (control_of < 0 || static_cast<int>(control_log_us.size()) < kLeastControlBlocks)
    return std::nullopt;
  return Paired(control_log_us, At(control_of).log_us, control_log_us.begin()->first);
}

bool Tuner::Impl::ControlDiffers() const {
  const auto d = ControlDifference();
  return d && std::abs(d->mean) > options.epsilon &&
         std::abs(d->mean) > ControlZ(control_log_us.size()) * d->error;
}

void Tuner::Impl::DistrustControl() {
  Distrust(Format("two copies of one kernel differ by {:.1f} %",
                  100 * std::abs(std::expm1(ControlDifference()->mean))));
}

void Tuner::Impl::AfterRaceBlock() {
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

}  // namespace tilewright
