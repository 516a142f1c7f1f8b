#include "tilewright/hand_over.h"

#include <atomic>
#include <chrono>

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 1000;
/// A worker that is asleep comes within this; one that loses its processor meanwhile ends the measurement.
constexpr std::chrono::milliseconds kPatience{20};

/// Waits until `word` is `value`; false once the time is up.
bool Await(const std::atomic<int>& word, int value, Clock::time_point end) {
  for (;;) {
    for (int i = 0; i < 1000; ++i) {
      if (word.load(std::memory_order_acquire) == value) return true;
    }
    if (Clock::now() > end) return false;
  }
}

}  // namespace

double MeasureHandOverNs(Executor& executor) {
  if (executor.workers() < 2) return 0;
  struct {
    alignas(64) std::atomic<int> here{0};
    alignas(64) std::atomic<int> turn{0};
  } shared;
  double ns = 0;
  const Clock::time_point end = Clock::now() + kPatience;
  // Two workers write the same word by turns: it is 2 i for the first and 2 i + 1 for the second.
  executor.Run(2, [&](int task, int) {
    shared.here.fetch_add(1);
    if (!Await(shared.here, 2, end)) return;
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kRounds; ++i) {
      if (!Await(shared.turn, 2 * i + task, end)) return;
      shared.turn.store(2 * i + task + 1, std::memory_order_release);
    }
    if (task != 0) return;
    ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count() / (2 * kRounds);
  });
  return ns;
}

}  // namespace tilewright
