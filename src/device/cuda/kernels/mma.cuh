#pragma once

#include "device/cuda/kernels/types.cuh"

// mma.sync m16n8k16 with 16-bit inputs and f32 accumulators (sm_80 and newer). One warp computes
// d[16][8] += a[16][16] * b[16][8]. With g = lane / 4 and t = lane % 4 a thread holds
//   a[0] = A[g][2t, 2t+1]      a[1] = A[g+8][2t, 2t+1]
//   a[2] = A[g][2t+8, 2t+9]    a[3] = A[g+8][2t+8, 2t+9]
//   b0   = B[2t, 2t+1][g]      b1   = B[2t+8, 2t+9][g]
//   d[0], d[1] = D[g][2t, 2t+1]          d[2], d[3] = D[g+8][2t, 2t+1]
// where a pair is one register with the first element in the low half.

#if defined(__CUDACC__)  // on the host mma_emulation.h stands for it

namespace tw {

template <Type kType>
__device__ __forceinline__ void Mma16816(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(kType == Type::kBF16 || kType == Type::kF16, "16-bit inputs");
  if constexpr (kType == Type::kBF16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// d = a * b: the zero that it adds to takes no instruction.
template <Type kType>
__device__ __forceinline__ void Mma16816Zero(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(kType == Type::kBF16 || kType == Type::kF16, "16-bit inputs");
  if constexpr (kType == Type::kBF16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  }
}

}  // namespace tw

#endif
