#pragma once

#include <cstring>

#include "device/cuda/kernels/mma_emulation.h"

// For tests only: cluster.cuh on the CPU, for launches that RunLaunch runs in clusters, whose CTAs
// keep in step. Include it before any .cuh that uses it.

namespace tw {

inline void ClusterArrive() {}
inline void ClusterWait() { emulation::Yield(); }
inline void ClusterSync() { emulation::Yield(); }
inline u32 ClusterCtaRank() { return emulation::cta.rank; }
/// As on a GPU: which CTA an address means is part of it.
inline u32 ClusterAddress(u32 smem, u32 cta) {
  return static_cast<u32>(smem + emulation::SmemBegin(cta) -
                          emulation::SmemBegin(emulation::cta.rank));
}
inline void StoreCluster(u32 remote, const u32* words, std::size_t bytes) {
  const auto rank = static_cast<unsigned int>(remote / emulation::SmemBegin(1));
  std::memcpy(emulation::SharedOf(rank, remote, bytes), words, bytes);
}
inline void StoreCluster16(u32 remote, u32 x, u32 y, u32 z, u32 w) {
  const u32 words[4] = {x, y, z, w};
  StoreCluster(remote, words, 16);
}
inline void StoreCluster8(u32 remote, u32 x, u32 y) {
  const u32 words[2] = {x, y};
  StoreCluster(remote, words, 8);
}

}  // namespace tw
