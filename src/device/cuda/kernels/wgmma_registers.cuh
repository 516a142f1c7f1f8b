#pragma once

#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/wgmma.cuh"

// wgmma whose accumulators are variables of the kernel, for kernels that compute with them between
// products (wgmma.cuh: accumulators that are only read at the end). Layouts and descriptors are
// those of wgmma.cuh; accumulators have kN / 2 elements a thread.
//
// Order of use: WgmmaFence, any number of products, WgmmaCommit, later WgmmaWaitFor with the
// accumulators that are complete then: before it, the compiler takes them for values to compute
// with.

#if defined(__CUDACC__)  // on the host hopper_registers_emulation.h stands for it

namespace tw {

#define TW_OUT8(d, i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define TW_OUT32(d, i) TW_OUT8(d, i), TW_OUT8(d, i + 8), TW_OUT8(d, i + 16), TW_OUT8(d, i + 24)
#define TW_OUT64(d) TW_OUT32(d, 0), TW_OUT32(d, 32)
#define TW_NAMES32                                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TW_NAMES64                                                                     \
  TW_NAMES32                                                                           \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/// Waits until at most `kPending` groups of products, the newest, are still under way; `d` is of
/// those that are not.
template <int kPending>
__device__ __forceinline__ void WgmmaWaitFor(float (&d)[32]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;" : TW_OUT32(d, 0) : "n"(kPending) : "memory");
}
template <int kPending>
__device__ __forceinline__ void WgmmaWaitFor(float (&d)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned %64;" : TW_OUT64(d) : "n"(kPending) : "memory");
}

// Both operands in shared memory, 64 of k in four instructions. `a`, `b`, `add`: operand numbers.
#define TW_SS_ONE(n, types, names, add)                                             \
  "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." types " {" names "}, a, b, " add \
  ", 1, 1, 0, 0;\n"
#define TW_SS_NEXT(n, types, names) \
  "add.s64 a, a, 2;\nadd.s64 b, b, 2;\n" TW_SS_ONE(n, types, names, "always")
#define TW_SS(n, types, names, outs, a_number, b_number, add_number)                              \
  asm volatile(                                                                                   \
      "{ .reg .pred first, always;\n.reg .b64 a, b;\n"                                            \
      "setp.ne.b32 first, " add_number                                                            \
      ", 0;\n"                                                                                    \
      "setp.eq.b32 always, 0, 0;\n"                                                               \
      "mov.b64 a, " a_number ";\nmov.b64 b, " b_number ";\n" TW_SS_ONE(n, types, names, "first")  \
          TW_SS_NEXT(n, types, names) TW_SS_NEXT(n, types, names) TW_SS_NEXT(n, types, names) "}" \
      : outs                                                                                      \
      : "l"(a_desc), "l"(b_desc), "n"(kAdd)                                                       \
      : "memory")

/// d[64][kN] (+)= A[64][64] * B[64][kN], both K-major in shared memory; types bf16 or f16. kAdd 0:
/// d is overwritten.
template <Type kType, int kN, int kAdd>
__device__ __forceinline__ void WgmmaShared(float (&d)[kN / 2], u64 a_desc, u64 b_desc) {
  static_assert(kType == Type::kBF16 || kType == Type::kF16, "16-bit inputs");
  static_assert(kN == 64 || kN == 128, "columns");
  if constexpr (kN == 64 && kType == Type::kBF16) {
    TW_SS("64", "bf16.bf16", TW_NAMES32, TW_OUT32(d, 0), "%32", "%33", "%34");
  } else if constexpr (kN == 64) {
    TW_SS("64", "f16.f16", TW_NAMES32, TW_OUT32(d, 0), "%32", "%33", "%34");
  } else if constexpr (kType == Type::kBF16) {
    TW_SS("128", "bf16.bf16", TW_NAMES64, TW_OUT64(d), "%64", "%65", "%66");
  } else {
    TW_SS("128", "f16.f16", TW_NAMES64, TW_OUT64(d), "%64", "%65", "%66");
  }
}

// A in registers, 16 of k in one instruction; `a`: its four operand numbers.
#define TW_RS(n, types, names, outs, a, b_number)                                               \
  asm volatile(                                                                                 \
      "{ .reg .pred always;\nsetp.eq.b32 always, 0, 0;\n"                                       \
      "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." types " {" names "}, {" a "}, " b_number \
      ", always, 1, 1, 1; }"                                                                    \
      : outs                                                                                    \
      : "r"(a_words[0]), "r"(a_words[1]), "r"(a_words[2]), "r"(a_words[3]), "l"(b_desc)         \
      : "memory")

/// d[64][kN] += A[64][16] * B[16][kN]: A in registers as those of mma.cuh for the 16 rows of a
/// warp, B MN-major in shared memory. The words of A stay as they are until the product is waited
/// for.
template <Type kType, int kN>
__device__ __forceinline__ void WgmmaRegisters(float (&d)[kN / 2], const u32* a_words, u64 b_desc) {
  static_assert(kType == Type::kBF16 || kType == Type::kF16, "16-bit inputs");
  static_assert(kN == 64 || kN == 128, "columns");
  if constexpr (kN == 64 && kType == Type::kBF16) {
    TW_RS("64", "bf16.bf16", TW_NAMES32, TW_OUT32(d, 0), "%32, %33, %34, %35", "%36");
  } else if constexpr (kN == 64) {
    TW_RS("64", "f16.f16", TW_NAMES32, TW_OUT32(d, 0), "%32, %33, %34, %35", "%36");
  } else if constexpr (kType == Type::kBF16) {
    TW_RS("128", "bf16.bf16", TW_NAMES64, TW_OUT64(d), "%64, %65, %66, %67", "%68");
  } else {
    TW_RS("128", "f16.f16", TW_NAMES64, TW_OUT64(d), "%64, %65, %66, %67", "%68");
  }
}

/// Descriptor of a matrix in shared memory without a swizzle, K-major: blocks of eight rows by 16 bytes
/// of k, 128 bytes each. `leading_bytes` leads from eight k to the next eight, `stride_bytes` from eight
/// rows to the next eight.
__device__ __forceinline__ u64 WgmmaPlainDescriptor(u32 smem, u32 leading_bytes, u32 stride_bytes) {
  return static_cast<u64>((smem & 0x3ffff) >> 4) | static_cast<u64>(leading_bytes >> 4) << 16 |
         static_cast<u64>(stride_bytes >> 4) << 32;
}

/// Waits for all products; `d` are their sums.
template <int kCount>
__device__ __forceinline__ void WgmmaWaitForAll(float (&d)[kCount]) {
  static_assert(kCount % 8 == 0, "columns");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < kCount; i += 8) asm volatile("" : TW_OUT8(d, i)::"memory");
}

#define TW_OUT16(d, i) TW_OUT8(d, i), TW_OUT8(d, i + 8)
#define TW_NAMES8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TW_NAMES16 TW_NAMES8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TW_RS_K(n, names, outs, a, b_number)                                                  \
  asm volatile(                                                                               \
      "{ .reg .pred always;\nsetp.eq.b32 always, 0, 0;\n"                                     \
      "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" names "}, {" a "}, " b_number \
      ", always, 1, 1, 0; }"                                                                  \
      : outs                                                                                  \
      : "r"(a_words[0]), "r"(a_words[1]), "r"(a_words[2]), "r"(a_words[3]), "l"(b_desc)       \
      : "memory")

/// The same with B K-major, f16.
template <int kN>
__device__ __forceinline__ void WgmmaRegistersKMajor(float (&d)[kN / 2], const u32 (&a_words)[4],
                                                     u64 b_desc) {
  static_assert(kN == 16 || kN == 32 || kN == 64 || kN == 128, "columns");
  if constexpr (kN == 16) {
    TW_RS_K("16", TW_NAMES8, TW_OUT8(d, 0), "%8, %9, %10, %11", "%12");
  } else if constexpr (kN == 32) {
    TW_RS_K("32", TW_NAMES16, TW_OUT16(d, 0), "%16, %17, %18, %19", "%20");
  } else if constexpr (kN == 64) {
    TW_RS_K("64", TW_NAMES32, TW_OUT32(d, 0), "%32, %33, %34, %35", "%36");
  } else {
    TW_RS_K("128", TW_NAMES64, TW_OUT64(d), "%64, %65, %66, %67", "%68");
  }
}

#undef TW_OUT16
#undef TW_NAMES8
#undef TW_NAMES16
#undef TW_RS_K
#undef TW_OUT8
#undef TW_OUT32
#undef TW_OUT64
#undef TW_NAMES32
#undef TW_NAMES64
#undef TW_SS_ONE
#undef TW_SS_NEXT
#undef TW_SS
#undef TW_RS

}  // namespace tw

#endif
