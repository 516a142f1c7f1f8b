#pragma once

#include "device/cuda/kernels/types.cuh"

// Clusters of CTAs (sm_90 and newer) that write each other's shared memory.

#if defined(__CUDACC__)  // on the host cluster_emulation.h or hopper_emulation.h stands for it

namespace tw {

/// All threads of all CTAs of the cluster; also orders their shared-memory writes. In two halves:
/// what a thread did before it arrives is seen by all behind their waits. That every CTA runs, so
/// that its shared memory may be written, is known behind the first wait.
TW_DEVICE void ClusterArrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
TW_DEVICE void ClusterWait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
TW_DEVICE void ClusterSync() {
  ClusterArrive();
  ClusterWait();
}

TW_DEVICE u32 ClusterCtaRank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// The address, as StoreCluster16 and StoreCluster8 take it, of what lies in CTA `cta` where `smem`
/// lies in this one.
TW_DEVICE u32 ClusterAddress(u32 smem, u32 cta) {
  u32 remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(smem), "r"(cta));
  return remote;
}
TW_DEVICE void StoreCluster16(u32 remote, u32 x, u32 y, u32 z, u32 w) {
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(remote), "r"(x), "r"(y),
               "r"(z), "r"(w)
               : "memory");
}
TW_DEVICE void StoreCluster8(u32 remote, u32 x, u32 y) {
  asm volatile("st.shared::cluster.v2.u32 [%0], {%1, %2};" ::"r"(remote), "r"(x), "r"(y)
               : "memory");
}

}  // namespace tw

#endif
