#pragma once

#include <cstring>

#include "device/cuda/kernels/hopper_emulation.h"

// For tests only: cluster.cuh on the CPU, for launches that RunLaunch runs in clusters, whose CTAs
// keep in step. Include it before any .cuh that uses it.

namespace tw {

inline void ClusterArriveRelaxed() {}
inline void ClusterWait() { emulation::Yield(); }
inline void SendToCluster(u32 remote, u32 barrier, const u32* words, std::size_t bytes) {
  const auto rank = static_cast<unsigned int>(remote / emulation::SmemBegin(1));
  std::memcpy(emulation::SharedOf(rank, remote, bytes), words, bytes);
  emulation::SharedOf(rank, barrier, 8);  // of the same CTA
  emulation::Progress(barrier, 0, -static_cast<std::int64_t>(bytes));
}
inline void SendToCluster16(u32 remote, u32 barrier, u32 x, u32 y, u32 z, u32 w) {
  const u32 words[4] = {x, y, z, w};
  SendToCluster(remote, barrier, words, 16);
}
inline void SendToCluster8(u32 remote, u32 barrier, u32 x, u32 y) {
  const u32 words[2] = {x, y};
  SendToCluster(remote, barrier, words, 8);
}
/// All threads that wait do so equally long.
inline void MbarrierWaitCluster(u32 barrier, u32 parity) {
  emulation::Yield();
  MbarrierWait(barrier, parity);
}

}  // namespace tw
