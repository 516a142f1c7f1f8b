#pragma once

// Parameter blocks of gemm_mma and gemm_hopper: what the host passes and the kernel reads, byte for
// byte. Plain C++, seen by the host compiler and by NVRTC.

namespace tw {

/// d[m][n] = alpha * (a b)[m][n], with Epilogue::kAdd + beta * c[m][n]. d and c are row-major with
/// leading dimensions in elements, at least n. Nothing outside m x n is read or written. c is read
/// only with kAdd and beta != 0; it may be d itself (same type and leading dimension), else it must
/// not overlap d. Stores are 16 bytes wide where d is a multiple of 16 bytes and ldd * sizeof(d) is
/// too; anything else is correct and slower.
struct GemmOutput {
  const void* c;
  void* d;
  long long ldc;
  long long ldd;
  int m;
  int n;
  int k;
  float alpha;
  float beta;
  int reserved;  // 0
};
static_assert(sizeof(GemmOutput) == 56, "layout");

/// gemm_mma. Leading dimensions in elements, at least the extent of the contiguous dimension: lda
/// >= k for A "t" ([m][k], k contiguous), >= m for A "n"; ldb >= k for B "n" ([n][k] in memory), >=
/// n for B "t". An operand whose address is a multiple of 16 and whose leading dimension is a
/// multiple of 8 is copied 16 bytes at a time, another one element by element.
struct GemmMmaParams {
  const void* a;
  const void* b;
  long long lda;
  long long ldb;
  GemmOutput out;
};
static_assert(sizeof(GemmMmaParams) == 88, "layout");

/// A CUtensorMap as cuTensorMapEncodeTiled fills it, opaque here.
struct alignas(128) TensorMap {
  unsigned long long opaque[16];
};
static_assert(sizeof(TensorMap) == 128, "layout");

/// gemm_hopper. The maps describe A, B and D (GemmTensorMaps in gemm_launch.h says how to encode
/// them). That of D is read only where d, ldd and n are multiples of 16
/// bytes.
struct GemmHopperParams {
  TensorMap a;
  TensorMap b;
  TensorMap d;
  GemmOutput out;
};
static_assert(sizeof(GemmHopperParams) == 512, "layout");

}  // namespace tw
