#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// CTAs of one grid that tell each other what is done.

namespace tw {

/// Adds one to a counter of all CTAs; returns what it was. What this CTA wrote before a barrier is
/// seen by who counts later.
TW_DEVICE u32 Arrive(u32* counter) {
#if defined(__CUDACC__)
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
#else
  return (*counter)++;
#endif
}

/// What a counter of Arrive has come to: as with Arrive, what others wrote before they counted is seen.
TW_DEVICE u32 Arrived(const u32* counter) {
#if defined(__CUDACC__)
  u32 count;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
  return count;
#else
  return *counter;
#endif
}

}  // namespace tw
