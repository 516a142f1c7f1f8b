#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tilewright/device.h"

namespace tilewright {

/// A device for tests that is as unlike the CPU as a device can be: its memory is inaccessible to
/// the host outside its own work, and work that is given to a stream waits there until somebody
/// synchronises; then the streams advance in an order drawn from a seed, any that their events
/// allow. A host access to device memory, a staging buffer that is reused too early and a missing
/// event are thus a fault or a wrong number, not luck.
///
/// Kernels reach it through FakeDevice::Submit (graph/fake/async_kernels.h wraps those of the CPU).
class FakeDevice : public Device {
 public:
  struct Options {
    std::uint64_t seed = 1;
    Executor* executor = nullptr;                     ///< that kernels run on; nullptr: the caller
    std::size_t memory_bytes = std::size_t{1} << 30;  ///< of address space; Allocate fails beyond
  };
  /// kOutOfMemory where the address space cannot be had.
  static Result<std::unique_ptr<FakeDevice>> Create(DeviceSpec spec, const Options& options);

  /// Puts `work` behind what was given to `stream`. It runs with device memory accessible.
  virtual void Submit(Stream stream, std::function<Status()> work) = 0;
  /// Pieces of work that have not run yet, over all streams.
  virtual std::size_t pending() const = 0;
  /// Whether device memory is accessible now: true within submitted work only.
  virtual bool accessible() const = 0;
};

}  // namespace tilewright
