#include "device/cpu/reference_loop.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "device/cpu/peak_loops.h"

namespace tilewright {
namespace {

struct Loop {
  std::uint32_t features;
  void (*run)(int rounds);
  int rounds;  // of about 15 microseconds: four products of 16 cycles, or twelve on two units
};
constexpr Loop kLoops[] = {{kFeatureAmxTile | kFeatureAmxBf16, PeakBF16Amx, 600},
                           {kFeatureAvx512, PeakF32Avx512, 6000},
                           {kFeatureAvx2, PeakF32Avx2, 6000}};

std::int64_t Nanoseconds(void (*run)(int rounds), int rounds) {
  const auto start = std::chrono::steady_clock::now();
  run(rounds);
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
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
    const std::int64_t ns = std::min(Nanoseconds(run_, rounds_), Nanoseconds(run_, rounds_));
    std::int64_t so_far = slowest.load();
    while (ns > so_far && !slowest.compare_exchange_weak(so_far, ns)) continue;
  });
  return static_cast<double>(slowest.load()) * 1e-3;
}

}  // namespace tilewright
