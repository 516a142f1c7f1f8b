#pragma once

#include "device/cuda/kernels/types.cuh"

// ldmatrix: a warp reads four 8x8 matrices of 16-bit elements from shared memory. Lane l gives the
// address of the 16-byte row l % 8 of matrix l / 8. With g = lane / 4 and t = lane % 4, thread
// `lane` receives in r[i] of matrix i
//   LdMatrixX4       element [g][2t] (low half) and [g][2t+1]
//   LdMatrixX4Trans  element [2t][g] (low half) and [2t+1][g]
//
// TransposeMatrix (movmatrix): the same for one matrix in registers, from the first of these to the
// second.

#if defined(__CUDACC__)  // on the host mma_emulation.h stands for it

namespace tw {

__device__ __forceinline__ void LdMatrixX4(u32 (&r)[4], u32 smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem)
               : "memory");
}

__device__ __forceinline__ void LdMatrixX4Trans(u32 (&r)[4], u32 smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem)
               : "memory");
}

__device__ __forceinline__ u32 TransposeMatrix(u32 pair) {
  u32 transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

}  // namespace tw

#endif
