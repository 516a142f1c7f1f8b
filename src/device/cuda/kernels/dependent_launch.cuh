#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Programmatic dependent launch (sm_90 and newer): a kernel of a stream may start while the kernels
// before it are still running, and sets itself up meanwhile. What every kernel of a family with
// KernelFamily::waits_for_prerequisites keeps to:
//
//   - Before WaitForPrerequisites it touches nothing that an earlier kernel may write or still
//     read: only its parameters, its own shared memory, and model weights where the parameters say
//     that they are constant. PrefetchToL2 is allowed of anything: L2 sees what is written later;
//     so where it should look is found out with ReadAhead, and read again behind the wait.
//   - In every CTA some thread calls WaitForPrerequisites before the CTA ends, so that the end of a
//     kernel means the end of all kernels before it: the next one waits for this one alone.
//   - What it reads afterwards is read by instructions that the compiler may not move up: plain
//     loads, or volatile ones with a memory clobber; never ld.global.nc.
//
// Without the launch attribute, and on older architectures, both calls do nothing.

namespace tw {

/// The kernel behind this one may be started, once every CTA has called this or ended. It says
/// nothing of memory. To be called early: waiting CTAs take only room that no CTA of this kernel
/// needs any more.
TW_DEVICE void LaunchDependents() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// The same, at the begin of a kernel that is over a while later, if it has no more CTAs than there
/// are multiprocessors. Where it has more, those that end first would leave their multiprocessors to
/// the next kernel, whose CTAs then crowd there: LaunchDependents at the end of the main loop.
TW_DEVICE void LaunchDependentsIfSparse() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  u32 multiprocessors;
  asm("mov.u32 %0, %%nsmid;" : "=r"(multiprocessors));
  if (gridDim.x * gridDim.y <= multiprocessors) LaunchDependents();
#endif
}

/// Returns when all kernels before this one have ended and what they wrote can be read. Of the
/// calling thread only: others need a barrier behind it, or call it too.
TW_DEVICE void WaitForPrerequisites() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Both: for kernels that have nothing to do ahead.
TW_DEVICE void StartAfterPrerequisites() {
  LaunchDependents();
  WaitForPrerequisites();
}

/// Starts the way of the line at `p` into L2; an address outside of all memory does nothing.
TW_DEVICE void PrefetchToL2(const void* p) {
#if defined(__CUDACC__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  static_cast<void>(p);
#endif
}

/// The same for `bytes` bytes (sm_90 and newer), which exist; both are multiples of 16.
TW_DEVICE void PrefetchToL2(const void* p, u32 bytes) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#else
  static_cast<void>(p);
  static_cast<void>(bytes);
#endif
}

#if defined(__CUDACC__)  // on the host host_emulation.h stands for it
/// What lies there now, which an earlier kernel may be about to overwrite: good for addresses of
/// prefetches, and as a guess that is compared with what lies there behind the wait. It stays in no
/// L1, so a load behind the wait sees what was written.
TW_DEVICE int ReadAhead(const int* p) {
  int value;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
#endif

}  // namespace tw
