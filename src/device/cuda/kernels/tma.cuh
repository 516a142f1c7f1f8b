#pragma once

#include "device/cuda/kernels/types.cuh"

// TMA: boxes of a tensor copied between global and shared memory by the copy engine (sm_90 and
// newer). `map` is the address of a tensor map (128 bytes, cuTensorMapEncodeTiled) in a
// __grid_constant__ parameter; coordinates are elements, innermost dimension first. What of a box
// lies outside the tensor arrives as zeros, and its bytes count as landed.

#if defined(__CUDACC__)  // on the host hopper_emulation.h stands for it

namespace tw {

__device__ __forceinline__ void TmaPrefetchMap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Box at (x, y) to `smem` (a multiple of 1024 for the 128-byte swizzle); its bytes count at
/// `barrier`.
__device__ __forceinline__ void TmaLoad2D(u32 smem, const void* map, u32 barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];"
      :
      : "r"(smem), "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

/// The same of a tensor of four dimensions.
__device__ __forceinline__ void TmaLoad4D(u32 smem, const void* map, u32 barrier, int x, int y,
                                          int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];"
      :
      : "r"(smem), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

/// What this thread has written to shared memory is there for the copy engine, once a barrier has
/// told the thread that starts the copy.
__device__ __forceinline__ void FenceBeforeTma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// What threads have written to global memory, or know to be written, is there for the copy engine.
__device__ __forceinline__ void FenceGlobalBeforeTma() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Box at (x, y) from `smem`; chunks of 16 bytes of it that lie outside the tensor are not written.
/// A chunk that is partly inside is written whole (measured on an H200). The copy joins the
/// thread's group, which TmaStoreCommit closes.
__device__ __forceinline__ void TmaStore2D(const void* map, u32 smem, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
               :
               : "l"(map), "r"(smem), "r"(x), "r"(y)
               : "memory");
}

__device__ __forceinline__ void TmaStoreCommit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most `kPending` of this thread's groups, the newest, have still to read shared
/// memory.
template <int kPending>
__device__ __forceinline__ void TmaStoreWaitRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// The same box to the same offset of every CTA of the cluster whose bit is set in `ctas`; bytes
/// count at the barrier of the same offset in each.
__device__ __forceinline__ void TmaLoad2DMulticast(u32 smem, const void* map, u32 barrier, int x,
                                                   int y, u16 ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
      :
      : "r"(smem), "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(ctas)
      : "memory");
}

}  // namespace tw

#endif
