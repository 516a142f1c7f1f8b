#include "device/cpu/reference_loop.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

#include "device/cpu/peak_loops.h"

namespace tilewright {
namespace {

struct Loop {
  std::uint32_t features;
  void (*run)(int rounds);
  int rounds;  // of about 15 microseconds: four products of 16 cycles, or twelve on two units
};
constexpr Loop kLoops[] = {{kFeatureAmxTile | kFeatureAmxBf16, AllTilesBF16Amx, 600},
                           {kFeatureAvx512, PeakF32Avx512, 6000},
                           {kFeatureAvx2, PeakF32Avx2, 6000}};

/// A unit that was not used for a while takes tens of microseconds to reach its speed, and a virtual machine
/// is interrupted in one run of ten; a slow spell lasts through all of them.
constexpr int kRuns = 16;

std::int64_t LeastNanoseconds(void (*run)(int rounds), int rounds) {
  using Clock = std::chrono::steady_clock;
  auto least = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kRuns; ++i) {
    const auto start = Clock::now();
    run(rounds);
    const std::int64_t ns = std::chrono::nanoseconds(Clock::now() - start).count();
    least = std::min(least, ns);
  }
  return least;
}

}  // namespace

ReferenceLoop::ReferenceLoop(const DeviceSpec& device) {
  if (device.kind != DeviceKind::kCpu) return;
  for (const Loop& loop : kLoops) {
    if (!device.Has(loop.features)) continue;
    run_ = loop.run, rounds_ = loop.rounds;
    return;
  }
}

double ReferenceLoop::Us(Executor& executor) const {
  if (run_ == nullptr) return 0;
  std::atomic<std::int64_t> slowest{0};
  executor.Run(executor.workers(), [&](int, int) {
    const std::int64_t ns = LeastNanoseconds(run_, rounds_);
    std::int64_t so_far = slowest.load();
    while (ns > so_far && !slowest.compare_exchange_weak(so_far, ns)) continue;
  });
  return static_cast<double>(slowest.load()) * 1e-3;
}

}  // namespace tilewright
