#include "engine/machine_mode.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace tilewright {
namespace {

bool IsTime(double us) { return us > 0 && std::isfinite(us); }

}  // namespace

double FullSpeedUs(std::span<const double> times, double known) {
  std::vector<double> sorted;
  for (const double us : times) {
    if (IsTime(us)) sorted.push_back(us);
  }
  std::sort(sorted.begin(), sorted.end());
  const double decile = sorted.empty() ? 0 : sorted[sorted.size() / 10];
  if (!IsTime(known)) return decile;
  return decile > 0 ? std::min(decile, known) : known;
}

std::vector<int> SlowBlocks(std::span<const BlockReference> blocks, double full_speed_us) {
  std::vector<int> slow;
  if (!IsTime(full_speed_us)) return slow;
  for (const BlockReference& one : blocks) {
    if (one.reference_us > kSlowMode * full_speed_us) slow.push_back(one.block);
  }
  return slow;
}

std::optional<std::string> SlowSpell(std::span<const BlockReference> blocks, double full_speed_us) {
  const std::vector<int> slow = SlowBlocks(blocks, full_speed_us);
  if (slow.empty()) return std::nullopt;
  double worst = 0;
  for (const BlockReference& one : blocks) worst = std::max(worst, one.reference_us);
  return Format(
      "the machine was in a slow spell: a reference loop took up to {:.1f} times what it does at "
      "full "
      "speed, in {} of {} blocks of samples",
      worst / full_speed_us, slow.size(), blocks.size());
}

}  // namespace tilewright
