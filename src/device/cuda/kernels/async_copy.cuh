#pragma once

#include "device/cuda/kernels/types.cuh"

// cp.async: copies from global to shared memory that do not pass through registers (sm_80 and
// newer), in groups that a thread waits for in the order it committed them.

#if defined(__CUDACC__)  // on the host mma_emulation.h stands for it

namespace tw {

/// The address of `pointer`, which points into shared memory, as shared-memory instructions take
/// it.
__device__ __forceinline__ u32 SmemAddress(const void* pointer) {
  u32 address;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }"
      : "=r"(address)
      : "l"(pointer));
  return address;
}

/// Copies `bytes` (0 to 16) and writes zeros over the rest of the 16 bytes at `smem`. Both
/// addresses are multiples of 16; nothing at or behind `global + bytes` is read. Past L1: a tile is
/// read once per CTA.
__device__ __forceinline__ void CpAsync16(u32 smem, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(smem), "l"(global), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void CpAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `kPending` of this thread's groups, the newest ones, are still under way.
template <int kPending>
__device__ __forceinline__ void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void StoreShared16(u32 smem, u32 x, u32 y, u32 z, u32 w) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(smem), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

}  // namespace tw

#endif
