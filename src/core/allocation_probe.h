#pragma once

#include <cstddef>
#include <cstdint>

namespace tilewright {

/// Counts what the program allocates with new, in all threads. A test or benchmark that links
/// `allocation_probe` replaces operator new by one that counts.
struct AllocationProbe {
  static std::int64_t Count();   ///< since the program began
  static std::size_t Largest();  ///< bytes of the largest one since ForgetLargest
  static void ForgetLargest();
};

}  // namespace tilewright
