#pragma once

#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/types.cuh"

// cp.async: copies from global to shared memory that do not pass through registers (sm_80 and
// newer), in groups that a thread waits for in the order it committed them.

#if defined(__CUDACC__)  // on the host mma_emulation.h stands for it

namespace tw {

/// Copies `bytes` (0 to 16) and writes zeros over the rest of the 16 bytes at `smem`. Both
/// addresses are multiples of 16; nothing at or behind `global + bytes` is read. Past L1: a tile is
/// read once per CTA.
__device__ __forceinline__ void CpAsync16(u32 smem, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(smem), "l"(global), "r"(bytes)
               : "memory");
}

/// All 16 bytes: one instruction, where a variable length takes about eight. For data that is read
/// once: 128 bytes at a time come into L2.
__device__ __forceinline__ void CpAsync16(u32 smem, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :
               : "r"(smem), "l"(global)
               : "memory");
}

/// The policy of CpAsync16Once and BulkCopyOnce: such lines leave L2 before all others.
__device__ __forceinline__ u64 ReadOncePolicy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// The same of data that is read once, by `policy`. Where `smem` is a sum of which one part is the
/// same in all lanes, ptxas 13.0 may make of it an address that does not go with a policy, and the
/// kernel ends with an illegal instruction (seen as `LDGSTS [R8+UR0], desc[UR1]`): make the sum
/// before it becomes an address of shared memory.
__device__ __forceinline__ void CpAsync16Once(u32 smem, const void* global, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(smem), "l"(global), "l"(policy)
               : "memory");
}

/// `bytes` bytes of such data by the copy engine (sm_90 and newer); they count at the mbarrier
/// `barrier`. Addresses and bytes are multiples of 16.
__device__ __forceinline__ void BulkCopyOnce(u32 smem, const void* global, u32 bytes, u32 barrier,
                                             u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;"
      :
      : "r"(smem), "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

/// The same of data that others read too.
__device__ __forceinline__ void BulkCopy(u32 smem, const void* global, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(smem), "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

/// 16 bytes, or 16 zeros where the source does not exist, which is then not read.
__device__ __forceinline__ void CpAsync16OrZeros(u32 smem, const void* global, bool exists) {
  asm volatile(
      "{ .reg .pred zeros;\n"
      "setp.eq.u32 zeros, %2, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, zeros; }"
      :
      : "r"(smem), "l"(global), "r"(static_cast<u32>(exists))
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

}  // namespace tw

#endif
