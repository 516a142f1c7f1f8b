#include <algorithm>

#include "core/random.h"
#include "core/text.h"
#include "engine/tuner_impl.h"

namespace tilewright {
int Tuner::Impl::AliveCount() const {
  return static_cast<int>(
      std::count_if(arms.begin(), arms.end(), [](const Arm& arm) { return arm.alive; }));
}

void Tuner::Impl::FillQueue() {
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

void Tuner::Impl::Shuffle() {
  for (std::size_t i = queue.size(); i > 1; --i)
    std::swap(queue[i - 1], queue[SplitMix64(random_state) % i]);
}

int Tuner::Impl::Defender() const {
  int defender = -1;
  for (int a = 0; a < Count(); ++a) {
    if (!At(a).kept || At(a).result.verdict != Verdict::kOk) continue;
    if (At(a).candidate.incumbent) return a;
    if (At(a).candidate.fallback) defender = a;
  }
  return defender;
}

void Tuner::Impl::DefenderFirst() {
  const auto at = std::find(queue.begin(), queue.end(), Defender());
  if (at != queue.end()) std::rotate(at, at + 1, queue.end());
}

double Tuner::Impl::RelativeTime(const Arm& arm, int begin) const {
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

std::vector<int> Tuner::Impl::Ranking(int begin) const {
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

PairedDifference Tuner::Impl::Paired(const std::map<int, double>& one,
                                     const std::map<int, double>& against, int begin) {
  std::vector<double> differences;
  for (const auto& [b, log_us] : one) {
    const auto other = against.find(b);
    if (b >= begin && other != against.end()) differences.push_back(log_us - other->second);
  }
  return TrimmedMean(std::move(differences));
}

PairedDifference Tuner::Impl::Paired(const Arm& arm, const Arm& against, int begin) {
  return Paired(arm.log_us, against.log_us, begin);
}

bool Tuner::Impl::DropBlock() {
  const auto spell = SlowSpell(References(block), FullSpeed());
  if (!std::exchange(disturbed, false) && !spell) return false;
  if (dropped >= options.max_dropped) {
    Distrust(spell.value_or(
        Format("the machine was busy with something else in more than {} blocks of samples",
               options.max_dropped)));
    return false;
  }
  ++dropped;
  for (Arm& arm : arms) {
    arm.log_us.erase(block);
    arm.fresh_us.erase(block);
  }
  control_log_us.erase(block);
  reference_us.erase(block);
  --block;
  if (phase == Phase::kVerify) {
    FillVerify();
  } else {
    FillQueue();
  }
  return true;
}

std::vector<BlockReference> Tuner::Impl::References(int begin) const {
  std::vector<BlockReference> blocks;
  for (auto at = reference_us.lower_bound(begin); at != reference_us.end(); ++at)
    blocks.push_back({at->first, at->second});
  return blocks;
}

void Tuner::Impl::Distrust(std::string why) {
  untrusted = true;
  if (inconclusive.empty()) inconclusive = std::move(why);
}

void Tuner::Impl::Kill(Arm& arm, Verdict verdict, std::string evidence) {
  arm.alive = false;
  arm.result.verdict = verdict;
  arm.result.evidence = std::move(evidence);
}

bool Tuner::Impl::Revive() {
  for (Arm& arm : arms)
    arm.alive = arm.kept && arm.result.verdict == Verdict::kOk && !arm.log_us.empty();
  if (AliveCount() == 0) return false;
  rival = -1;
  phase = Phase::kRace;
  race_begin = block + 1;
  FillQueue();
  return true;
}

void Tuner::Impl::TakeTime(Arm& arm, double us) {
  arm.log_us[block] = std::log(us);
  if (phase == Phase::kVerify) arm.fresh_us[block] = us;
}

void Tuner::Impl::AfterFailure(int a) {
  std::erase(queue, a);  // where its copy broke first
  if (a == control_of) std::erase(queue, Copy());
  if (phase == Phase::kRecheck || phase == Phase::kVerify) {
    // The winner failed at the end: the next in the ranking takes its place.
    if (a == rival) {
      rival = -1;
      return;
    }
    queue.clear();
    if (AliveCount() > 0) Select();  // else Advance revives
  }
}

void Tuner::Impl::Advance() {
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

}  // namespace tilewright
