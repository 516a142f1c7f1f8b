#pragma once

#include <cstdint>

#include "tilewright/device.h"

namespace tilewright {

/// Memory that kernels work in, in bytes.
struct MemorySpace {
  std::uint64_t free = 0;  ///< can still be allocated, as far as other processes let it be
  std::uint64_t total = 0;
};

/// A device that tells how much of its memory is free.
class TellsMemory {
 public:
  virtual Result<MemorySpace> Memory() = 0;

 protected:
  ~TellsMemory() = default;
};

/// Of the host's memory where `device` works in that. kUnsupported for a device that does not tell.
Result<MemorySpace> MemoryOf(Device& device);

}  // namespace tilewright
