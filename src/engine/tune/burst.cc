#include "engine/tune/burst.h"

#include <algorithm>

#include "device/slowdown.h"

namespace tilewright {

bool BurstTimer::usable() {
  if (!asked_ && device_.can_capture()) {
    Result<std::unique_ptr<DeviceEvent>> begin = device_.CreateTimer();
    Result<std::unique_ptr<DeviceEvent>> end = device_.CreateTimer();
    if (begin && end) begin_ = std::move(*begin), end_ = std::move(*end);
  }
  asked_ = true;
  return begin_ != nullptr;
}

/// Overwrites what the last-level cache holds.
Status BurstTimer::Flush() {
  const auto bytes = static_cast<std::size_t>(2 * device_.spec().llc_bytes);
  if (flushed_.size() < bytes) {
    Result<DeviceMemory> memory = device_.Allocate(bytes);
    if (!memory) return Fail(memory.error());
    flushed_ = std::move(*memory);
  }
  return device_.Fill(flushed_.data(), 0, flushed_.size(), stream_);
}

/// A first replay keeps the device busy while the host submits the rest, so that no gap of the
/// host's making is between the timers.
Result<double> BurstTimer::Measure(DeviceGraph& graph, int replays, bool flush) {
  Status s = graph.Launch(stream_);
  if (s && flush) s = Flush();
  if (s) s = device_.Record(*begin_, stream_);
  for (int i = 0; s && i < replays; ++i) s = graph.Launch(stream_);
  if (s) s = device_.Record(*end_, stream_);
  if (s) s = device_.Synchronize(stream_);
  if (!s) return Fail(s.error());
  return device_.MicrosBetween(*begin_, *end_);
}

Tuner::Outcome BurstTimer::Time(const Burst& burst, const std::function<Status()>& launch) {
  Status first = launch();
  if (first) first = device_.Synchronize(stream_);
  if (!first) return Failed(first.error());
  const int launches = std::clamp(burst.reps, 1, kMostLaunches);
  const int replays = (burst.reps + launches - 1) / launches;
  const Result<std::unique_ptr<DeviceGraph>> graph = device_.Capture(stream_, [&]() -> Status {
    for (int i = 0; i < launches; ++i) {
      if (Status s = launch(); !s) return s;
    }
    return {};
  });
  if (!graph) return Failed(graph.error());
  // The first replay has read what the timed one reads: where that fits into the cache, it must go.
  const bool flush =
      static_cast<double>(burst.rotating_bytes) * launches < static_cast<double>(burst.cold_bytes);
  const Result<double> us = Measure(**graph, replays, flush);
  if (!us) return Failed(us.error());
  Tuner::Outcome outcome;
  auto* const tells = dynamic_cast<TellsSlowdown*>(&device_);
  outcome.disturbed = tells != nullptr && tells->Slowed();
  outcome.us = *us / (static_cast<double>(launches) * replays);
  return outcome;
}

}  // namespace tilewright
