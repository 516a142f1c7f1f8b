#pragma once

#include "device/cuda/kernels/types.cuh"

// Clusters of CTAs (sm_90 and newer) that write each other's shared memory.

#if defined(__CUDACC__)  // on the host cluster_emulation.h or hopper_emulation.h stands for it

namespace tw {

/// All threads of all CTAs of the cluster; also orders their shared-memory writes.
__device__ __forceinline__ void ClusterSync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/// The same in two halves, but what a thread wrote before is not there for the others: a release
/// waits for all that the thread has stored anywhere. FenceBarrierInit in front of the first half
/// makes barriers known to all, and behind the second all CTAs run, so that their shared memory may
/// be written.
__device__ __forceinline__ void ClusterArriveRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ u32 ClusterCtaRank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// The address in the cluster's memory of what lies in CTA `cta` where `smem` lies in this one.
__device__ __forceinline__ u32 ClusterAddress(u32 smem, u32 cta) {
  u32 remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(smem), "r"(cta));
  return remote;
}

/// Stores to a ClusterAddress, whose bytes a barrier of the same CTA counts.
__device__ __forceinline__ void SendToCluster16(u32 remote, u32 barrier, u32 x, u32 y, u32 z,
                                                u32 w) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(remote),
      "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void SendToCluster8(u32 remote, u32 barrier, u32 x, u32 y) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%0], {%1, %2}, "
      "[%3];" ::"r"(remote),
      "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

/// MbarrierWait for what CTAs of the cluster send.
__device__ __forceinline__ void MbarrierWaitCluster(u32 barrier, u32 parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace tw

#endif
