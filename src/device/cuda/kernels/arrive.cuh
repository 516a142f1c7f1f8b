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

/// Adds `amount` to such a counter, which then counts several things in its bits; the same otherwise.
TW_DEVICE u32 ArriveWith(u32* counter, u32 amount) {
#if defined(__CUDACC__)
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(amount)
               : "memory");
  return before;
#else
  const u32 before = *counter;
  *counter += amount;
  return before;
#endif
}

/// What the counter is now. What others wrote before they counted is seen behind it.
TW_DEVICE u32 ReadArrivals(const u32* counter) {
#if defined(__CUDACC__)
  u32 now;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  return now;
#else
  return *counter;
#endif
}

#if defined(__CUDACC__)  // on the host host_emulation.h stands for it
/// Between two looks at such a counter.
TW_DEVICE void PauseInWait() {}
/// A clock of the whole GPU.
TW_DEVICE u64 NanosecondsNow() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
#endif

}  // namespace tw
