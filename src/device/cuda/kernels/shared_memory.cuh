#pragma once

#include "device/cuda/kernels/types.cuh"

// Shared memory by its own addresses, which fit in 32 bits.

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

/// 4, 8 or 16 bytes; `smem` is a multiple of as many.
__device__ __forceinline__ void StoreShared4(u32 smem, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" : : "r"(smem), "r"(x) : "memory");
}
__device__ __forceinline__ void StoreShared8(u32 smem, u32 x, u32 y) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" : : "r"(smem), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void StoreShared16(u32 smem, u32 x, u32 y, u32 z, u32 w) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(smem), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
__device__ __forceinline__ void LoadShared16(u32 (&v)[4], u32 smem) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(smem)
               : "memory");
}

}  // namespace tw

#endif
