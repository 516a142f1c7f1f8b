#pragma once

#include "device/cuda/kernels/types.cuh"

// wgmma: a warpgroup (four warps, the first a multiple of four) multiplies matrices in shared
// memory into f32 registers, asynchronously (sm_90a only).
//
// Order of use: WgmmaFence, any number of Wgmma, WgmmaCommit, later WgmmaWait. The accumulators may
// not be touched between; WgmmaPin keeps the compiler from moving their reads above the wait.

#if defined(__CUDACC__)  // on the host hopper_emulation.h stands for it

namespace tw {

/// Descriptor of a matrix in shared memory in 128-byte swizzle, that is 1024-byte atoms of eight
/// 128-byte lines in which the 16-byte chunk c of line l lies at c ^ l: what TMA writes with
/// CU_TENSOR_MAP_SWIZZLE_128B to an address that is a multiple of 1024. Fields, all in units of 16
/// bytes: 0-13 address, 16-29 leading offset, 32-45 stride offset; 49-51 base offset, 0 for aligned
/// atoms; 62-63 layout, 1 for 128-byte swizzle.
///
/// K-major (trans = 0): a line is 64 elements of k of one row. `stride_bytes` leads from eight rows
/// to the next eight (1024); `leading_bytes` is not used. The next 16 of k start 32 bytes on.
/// MN-major (trans = 1): a line is 64 rows at one k. `stride_bytes` leads from eight k to the next
/// eight (1024), `leading_bytes` from 64 rows to the next 64. The next 16 of k start 2048 bytes on.
__device__ __forceinline__ u64 WgmmaDescriptor(u32 smem, u32 leading_bytes, u32 stride_bytes) {
  return static_cast<u64>((smem & 0x3ffff) >> 4) | static_cast<u64>(leading_bytes >> 4) << 16 |
         static_cast<u64>(stride_bytes >> 4) << 32 | static_cast<u64>(1) << 62;
}

/// Orders earlier accesses to the accumulators before the Wgmma that follow.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most `kPending` groups, the newest, are still under way.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// More or fewer registers a thread of this warpgroup, within what the launch bounds reserved for
/// the CTA; multiples of 8. Every warp of the warpgroup executes it.
template <int kRegisters>
__device__ __forceinline__ void RegistersRaise() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void RegistersLower() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Sixteen accumulators as operands, and the names of operands 16 i to 16 i + 15.
#define TW_ACC4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TW_ACC(i) TW_ACC4(16 * i), TW_ACC4(16 * i + 4), TW_ACC4(16 * i + 8), TW_ACC4(16 * i + 12)
#define TW_REG0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TW_REG1 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TW_REG2 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TW_REG3 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TW_REG4 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define TW_REG5 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TW_REG6                                  \
  "%96, %97, %98, %99, %100, %101, %102, %103, " \
  "%104, %105, %106, %107, %108, %109, %110, %111"
#define TW_REG7                                      \
  "%112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"

template <int kCount>
__device__ __forceinline__ void WgmmaPin(float (&d)[kCount]) {
  static_assert(kCount % 16 == 0, "whole lists of accumulators");
#pragma unroll
  for (int i = 0; i < kCount; i += 16) {
    asm volatile("" : TW_ACC4(i), TW_ACC4(i + 4), TW_ACC4(i + 8), TW_ACC4(i + 12)::"memory");
  }
}

// The four instructions of a k-tile in one statement, so that the compiler sees the accumulators
// once: `regs` and the last arguments list the N / 2 accumulators; the operands behind them are
// named a, b (descriptors), s (0: D = A B, else D += A B), ta and tb (1: MN-major), da and db (what
// is added to the descriptors from one instruction to the next).
#define TW_WGMMA(n, types, regs, a, b, s, ta, tb)                                        \
  "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." types " {" regs "}, " a ", " b ", " s \
  ", 1, 1, " ta ", " tb ";\n"
#define TW_WGMMA_NEXT(n, types, regs, ta, tb, da, db) \
  "add.s64 a, a, " da ";\nadd.s64 b, b, " db ";\n" TW_WGMMA(n, types, regs, "a", "b", "add", ta, tb)
#define TW_WGMMA_TILE(n, types, regs, a, b, s, ta, tb, da, db, ...)                               \
  asm volatile(                                                                                   \
      "{ .reg .pred first, add;\n.reg .b64 a, b;\n"                                               \
      "setp.ne.b32 first, " s ", 0;\nsetp.eq.b32 add, " s ", " s ";\nmov.b64 a, " a               \
      ";\nmov.b64 b, " b ";\n" TW_WGMMA(n, types, regs, "a", "b", "first", ta, tb) TW_WGMMA_NEXT( \
          n, types, regs, ta, tb, da, db) TW_WGMMA_NEXT(n, types, regs, ta, tb, da, db)           \
          TW_WGMMA_NEXT(n, types, regs, ta, tb, da, db) "}"                                       \
      : __VA_ARGS__                                                                               \
      : "l"(a_desc), "l"(b_desc), "r"(accumulate), "n"(kTransA), "n"(kTransB),                    \
        "n"(kTransA != 0 ? 128 : 2), "n"(kTransB != 0 ? 128 : 2)                                  \
      : "memory")
#define TW_WGMMA_TYPES(n, regs, a, b, s, ta, tb, da, db, ...)                  \
  if constexpr (kType == Type::kBF16) {                                        \
    TW_WGMMA_TILE(n, "bf16.bf16", regs, a, b, s, ta, tb, da, db, __VA_ARGS__); \
  } else {                                                                     \
    TW_WGMMA_TILE(n, "f16.f16", regs, a, b, s, ta, tb, da, db, __VA_ARGS__);   \
  }

/// d[64][kN] (+)= A[64][64] * B[64][kN], types bf16 or f16: four instructions, of 16 k each. Warp w
/// of the warpgroup has rows 16 w to 16 w + 15; with g = lane / 4, t = lane % 4 a thread holds, for
/// every eight columns j,
///   d[4j], d[4j+1] = D[16w + g][8j + 2t, 8j + 2t + 1]
///   d[4j+2], d[4j+3] = D[16w + g + 8][8j + 2t, 8j + 2t + 1]
template <Type kType, int kN, int kTransA, int kTransB>
__device__ __forceinline__ void Wgmma(float (&d)[kN / 2], u64 a_desc, u64 b_desc, int accumulate) {
  static_assert(kType == Type::kBF16 || kType == Type::kF16, "16-bit inputs");
  static_assert(kN % 32 == 0 && kN >= 32 && kN <= 256, "kN a multiple of 32 up to 256");
  if constexpr (kN == 32) {
    TW_WGMMA_TYPES("32", TW_REG0, "%16", "%17", "%18", "%19", "%20", "%21", "%22", TW_ACC(0))
  } else if constexpr (kN == 64) {
    TW_WGMMA_TYPES("64", TW_REG0 ", " TW_REG1, "%32", "%33", "%34", "%35", "%36", "%37", "%38",
                   TW_ACC(0), TW_ACC(1))
  } else if constexpr (kN == 96) {
    TW_WGMMA_TYPES("96", TW_REG0 ", " TW_REG1 ", " TW_REG2, "%48", "%49", "%50", "%51", "%52",
                   "%53", "%54", TW_ACC(0), TW_ACC(1), TW_ACC(2))
  } else if constexpr (kN == 128) {
    TW_WGMMA_TYPES("128", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3, "%64", "%65", "%66",
                   "%67", "%68", "%69", "%70", TW_ACC(0), TW_ACC(1), TW_ACC(2), TW_ACC(3))
  } else if constexpr (kN == 160) {
    TW_WGMMA_TYPES("160", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4, "%80", "%81",
                   "%82", "%83", "%84", "%85", "%86", TW_ACC(0), TW_ACC(1), TW_ACC(2), TW_ACC(3),
                   TW_ACC(4))
  } else if constexpr (kN == 192) {
    TW_WGMMA_TYPES("192", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4 ", " TW_REG5,
                   "%96", "%97", "%98", "%99", "%100", "%101", "%102", TW_ACC(0), TW_ACC(1),
                   TW_ACC(2), TW_ACC(3), TW_ACC(4), TW_ACC(5))
  } else if constexpr (kN == 224) {
    TW_WGMMA_TYPES("224",
                   TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4 ", " TW_REG5
                           ", " TW_REG6,
                   "%112", "%113", "%114", "%115", "%116", "%117", "%118", TW_ACC(0), TW_ACC(1),
                   TW_ACC(2), TW_ACC(3), TW_ACC(4), TW_ACC(5), TW_ACC(6))
  } else if constexpr (kN == 256) {
    TW_WGMMA_TYPES("256",
                   TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4 ", " TW_REG5
                           ", " TW_REG6 ", " TW_REG7,
                   "%128", "%129", "%130", "%131", "%132", "%133", "%134", TW_ACC(0), TW_ACC(1),
                   TW_ACC(2), TW_ACC(3), TW_ACC(4), TW_ACC(5), TW_ACC(6), TW_ACC(7))
  }
}

#undef TW_WGMMA_TYPES
#undef TW_WGMMA_TILE
#undef TW_WGMMA_NEXT
#undef TW_WGMMA
#undef TW_REG0
#undef TW_REG1
#undef TW_REG2
#undef TW_REG3
#undef TW_REG4
#undef TW_REG5
#undef TW_REG6
#undef TW_REG7
#undef TW_ACC
#undef TW_ACC4

}  // namespace tw

#endif
