#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "device/cpu/reference_loop.h"
#include "engine/tune/busy_watch.h"
#include "tilewright/device.h"
#include "tilewright/executor.h"
#include "tilewright/tune.h"

namespace tilewright {

// What the measurers of all operations share.

using MeasureClock = std::chrono::steady_clock;
inline double MicrosSince(MeasureClock::time_point begin) {
  return std::chrono::duration<double, std::micro>(MeasureClock::now() - begin).count();
}

Tuner::Outcome Failed(Verdict verdict, std::string evidence);
/// Too little memory says nothing about the kernel, nor does a device, a compiler or an artifact
/// that is not there; any other error does.
Tuner::Outcome Failed(const Error& error);

/// How many consecutive copies there are of what a pass reads anew, through which launches rotate.
class RotatingCopies {
 public:
  RotatingCopies(const MeasurerOptions& options, Executor& executor);
  /// On a GPU the cache is its L2, which needs no measuring, and the memory is the GPU's.
  RotatingCopies(const MeasurerOptions& options, Device& device);

  /// Of `stride` bytes each, as many as the policy asks for and `max_bytes` allows.
  int CountFor(std::size_t stride);
  std::size_t max_bytes() const { return static_cast<std::size_t>(max_bytes_); }
  /// Over how many bytes memory must rotate to be as the policy says.
  std::int64_t BytesWanted() { return policy_ == MeasurePolicy::kWarm ? warm_bytes_ : ColdBytes(); }

 private:
  std::int64_t ColdBytes();

  MeasurePolicy policy_;
  std::int64_t llc_bytes_, max_bytes_, warm_bytes_;
  Executor& executor_;
};

/// Tells how fast a CPU is around a sample.
class SpeedWatch {
 public:
  /// Of the workers of a CPU; of another device nothing is told.
  SpeedWatch(const DeviceSpec& device, Executor& executor) : loop_(device), executor_(executor) {}
  double Us() const { return loop_.Us(executor_); }

 private:
  ReferenceLoop loop_;
  Executor& executor_;
};

/// Times `reps` calls of `launch`, which gives a Status, and of `finish` behind the last.
template <class Launch, class Finish>
Tuner::Outcome TimeLaunches(BusyWatch& busy, const SpeedWatch& speed, int reps,
                            const Launch& launch, const Finish& finish) {
  const double reference_us = speed.Us();
  // One launch ahead wakes the workers and loads the code; not worth it where a launch takes
  // milliseconds.
  if (reps > 1) {
    if (Status s = launch(); !s) return Failed(s.error());
    if (Status s = finish(); !s) return Failed(s.error());
  }
  busy.Begin();
  const auto begin = MeasureClock::now();
  for (int i = 0; i < reps; ++i) {
    if (Status s = launch(); !s) return Failed(s.error());
  }
  if (Status s = finish(); !s) return Failed(s.error());
  Tuner::Outcome outcome;
  outcome.us = MicrosSince(begin) / reps;
  outcome.disturbed = busy.Disturbed();
  outcome.reference_us = std::max(reference_us, speed.Us());
  return outcome;
}

/// `measure` with what it took as its cost.
template <class Measure>
Tuner::Outcome WithCost(const Measure& measure) {
  const auto begin = MeasureClock::now();
  Tuner::Outcome outcome = measure();
  outcome.cost_us = MicrosSince(begin);
  return outcome;
}

}  // namespace tilewright
