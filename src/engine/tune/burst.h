#pragma once

#include <functional>
#include <memory>

#include "engine/tune/measuring.h"
#include "tilewright/device.h"

namespace tilewright {

/// Times launches on a device as a captured burst between two timers. A single launch of a few
/// microseconds would measure how fast the host submits it.
class BurstTimer {
 public:
  BurstTimer(Device& device, Stream stream) : device_(device), stream_(stream) {}

  /// Whether this device can: it captures work and has timers.
  bool usable();

  struct Burst {
    int reps = 1;
    std::size_t rotating_bytes = 0;  ///< that a launch reads of memory no other launch reads
    std::int64_t cold_bytes = 0;     ///< what must have been read since; 0: warm
  };
  /// `launch` submits one launch, each time with the next copy of what rotates, and does nothing
  /// else with the device. It is called once before the capture, to load what is loaded lazily, and
  /// at most kMostLaunches times in it.
  Tuner::Outcome Time(const Burst& burst, const std::function<Status()>& launch);

  static constexpr int kMostLaunches = 1024;

 private:
  Result<double> Measure(DeviceGraph& graph, int replays, bool flush);
  Status Flush();

  Device& device_;
  Stream stream_;
  bool asked_ = false;
  std::unique_ptr<DeviceEvent> begin_, end_;
  DeviceMemory flushed_;
};

}  // namespace tilewright
