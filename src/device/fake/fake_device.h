#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tilewright/device.h"

namespace tilewright {

/// A device for tests that is as unlike the CPU as possible: the host cannot access its memory
/// except within submitted work, and work submitted to a stream waits until a thread synchronises;
/// then the streams advance in a random order, drawn from a seed, among those that their events
/// allow. So a host access to device memory, a staging buffer that is reused too early or a missing
/// event causes a fault or a wrong number instead of going unnoticed.
///
/// Kernels reach it through FakeDevice::Submit (graph/fake/async_kernels.h wraps those of the CPU).
class FakeDevice : public Device {
 public:
  struct Options {
    std::uint64_t seed = 1;
    Executor* executor = nullptr;                     ///< for kernels; nullptr: the calling thread
    std::size_t memory_bytes = std::size_t{1} << 30;  ///< address space; Allocate fails beyond
  };
  /// kOutOfMemory if the address space cannot be reserved.
  static Result<std::unique_ptr<FakeDevice>> Create(DeviceSpec spec, const Options& options);

  /// Appends `work` to `stream`. Device memory is accessible while it runs.
  virtual void Submit(Stream stream, std::function<Status()> work) = 0;
  /// Number of pieces of work that have not run yet, over all streams.
  virtual std::size_t pending() const = 0;
  /// Whether device memory is accessible now, which is only true within submitted work.
  virtual bool accessible() const = 0;
};

}  // namespace tilewright
