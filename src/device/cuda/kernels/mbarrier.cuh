#pragma once

#include "device/cuda/kernels/types.cuh"

// mbarrier: a counter in shared memory that threads and bulk copies arrive at. A phase completes
// when all expected arrivals have come and all announced bytes have landed; then the next begins.
// `barrier` is a shared-memory address, a multiple of 8 (sm_90 and newer for bytes).

#if defined(__CUDACC__)  // on the host hopper_emulation.h stands for it

namespace tw {

/// By one thread; other threads and the copy engine see it after FenceBarrierInit and a barrier of
/// the CTA (or of the cluster, where peers arrive).
__device__ __forceinline__ void MbarrierInit(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes this thread's MbarrierInit visible to the cluster and to the copy engine.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void MbarrierArrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives at the barrier that lies at the same offset in CTA `cta` of the cluster. It orders no
/// memory accesses: for threads whose reads are over (after a wait for them), with nothing written.
/// A release would have to be one for the cluster, which waits for all that the thread has stored
/// anywhere.
__device__ __forceinline__ void MbarrierArriveCluster(u32 barrier, u32 cta) {
  asm volatile(
      "{ .reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote]; }"
      :
      : "r"(barrier), "r"(cta)
      : "memory");
}

/// Arrives and announces `bytes` that copies will bring before the phase completes.
__device__ __forceinline__ void MbarrierArriveExpectTx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// Returns when the phase of that parity (0 for the first, 1 for the second, 0 ...) is complete.
/// On a fresh barrier parity 1 counts as complete.
__device__ __forceinline__ void MbarrierWait(u32 barrier, u32 parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "tw_wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra tw_done;\n"
      "bra tw_wait;\n"
      "tw_done: }"
      :
      : "r"(barrier), "r"(parity)
      : "memory");
}

/// Waits for `threads` threads, whole warps, that name the same barrier (1 to 15; 0 is that of
/// __syncthreads); also orders their shared-memory accesses.
__device__ __forceinline__ void NamedBarrier(u32 barrier, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// Counts as one of its threads without waiting.
__device__ __forceinline__ void NamedBarrierArrive(u32 barrier, u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace tw

#endif
