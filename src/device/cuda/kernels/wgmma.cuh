#pragma once

#include "device/cuda/kernels/types.cuh"

// wgmma: a warpgroup (four warps, the first a multiple of four) multiplies matrices in shared
// memory into f32 registers, asynchronously (sm_90a only).
//
// Order of use: WgmmaFence, any number of Wgmma, WgmmaCommit, later WgmmaWait, then WgmmaRead.

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

// The accumulators are registers that only PTX has names for: tw_a0_<i> and tw_a1_<i> of two strips
// of 64 rows. As operands of a statement each of the up to 192 values would be carried through
// every pass of the compiler before ptxas, a third of the compile time of a kernel; ptxas sees the
// same either way.

/// Declares the accumulators of a kernel: once, before all branches, since PTX reads from top to
/// bottom.
__device__ __forceinline__ void WgmmaDeclareAccumulators() {
  asm volatile(".reg .f32 tw_a0_<128>, tw_a1_<96>;" ::: "memory");
}

// The names of accumulators 16 i to 16 i + 15 of the strip that operand 7 numbers.
#define TW_REG0                                \
  "tw_a%7_0, tw_a%7_1, tw_a%7_2, tw_a%7_3, "   \
  "tw_a%7_4, tw_a%7_5, tw_a%7_6, tw_a%7_7, "   \
  "tw_a%7_8, tw_a%7_9, tw_a%7_10, tw_a%7_11, " \
  "tw_a%7_12, tw_a%7_13, tw_a%7_14, tw_a%7_15"
#define TW_REG1                                  \
  "tw_a%7_16, tw_a%7_17, tw_a%7_18, tw_a%7_19, " \
  "tw_a%7_20, tw_a%7_21, tw_a%7_22, tw_a%7_23, " \
  "tw_a%7_24, tw_a%7_25, tw_a%7_26, tw_a%7_27, " \
  "tw_a%7_28, tw_a%7_29, tw_a%7_30, tw_a%7_31"
#define TW_REG2                                  \
  "tw_a%7_32, tw_a%7_33, tw_a%7_34, tw_a%7_35, " \
  "tw_a%7_36, tw_a%7_37, tw_a%7_38, tw_a%7_39, " \
  "tw_a%7_40, tw_a%7_41, tw_a%7_42, tw_a%7_43, " \
  "tw_a%7_44, tw_a%7_45, tw_a%7_46, tw_a%7_47"
#define TW_REG3                                  \
  "tw_a%7_48, tw_a%7_49, tw_a%7_50, tw_a%7_51, " \
  "tw_a%7_52, tw_a%7_53, tw_a%7_54, tw_a%7_55, " \
  "tw_a%7_56, tw_a%7_57, tw_a%7_58, tw_a%7_59, " \
  "tw_a%7_60, tw_a%7_61, tw_a%7_62, tw_a%7_63"
#define TW_REG4                                  \
  "tw_a%7_64, tw_a%7_65, tw_a%7_66, tw_a%7_67, " \
  "tw_a%7_68, tw_a%7_69, tw_a%7_70, tw_a%7_71, " \
  "tw_a%7_72, tw_a%7_73, tw_a%7_74, tw_a%7_75, " \
  "tw_a%7_76, tw_a%7_77, tw_a%7_78, tw_a%7_79"
#define TW_REG5                                  \
  "tw_a%7_80, tw_a%7_81, tw_a%7_82, tw_a%7_83, " \
  "tw_a%7_84, tw_a%7_85, tw_a%7_86, tw_a%7_87, " \
  "tw_a%7_88, tw_a%7_89, tw_a%7_90, tw_a%7_91, " \
  "tw_a%7_92, tw_a%7_93, tw_a%7_94, tw_a%7_95"
#define TW_REG6                                      \
  "tw_a%7_96, tw_a%7_97, tw_a%7_98, tw_a%7_99, "     \
  "tw_a%7_100, tw_a%7_101, tw_a%7_102, tw_a%7_103, " \
  "tw_a%7_104, tw_a%7_105, tw_a%7_106, tw_a%7_107, " \
  "tw_a%7_108, tw_a%7_109, tw_a%7_110, tw_a%7_111"
#define TW_REG7                                      \
  "tw_a%7_112, tw_a%7_113, tw_a%7_114, tw_a%7_115, " \
  "tw_a%7_116, tw_a%7_117, tw_a%7_118, tw_a%7_119, " \
  "tw_a%7_120, tw_a%7_121, tw_a%7_122, tw_a%7_123, " \
  "tw_a%7_124, tw_a%7_125, tw_a%7_126, tw_a%7_127"

// The first eight of those.
#define TW_HALF1                                 \
  "tw_a%7_16, tw_a%7_17, tw_a%7_18, tw_a%7_19, " \
  "tw_a%7_20, tw_a%7_21, tw_a%7_22, tw_a%7_23"
#define TW_HALF2                                 \
  "tw_a%7_32, tw_a%7_33, tw_a%7_34, tw_a%7_35, " \
  "tw_a%7_36, tw_a%7_37, tw_a%7_38, tw_a%7_39"
#define TW_HALF3                                 \
  "tw_a%7_48, tw_a%7_49, tw_a%7_50, tw_a%7_51, " \
  "tw_a%7_52, tw_a%7_53, tw_a%7_54, tw_a%7_55"
#define TW_HALF4                                 \
  "tw_a%7_64, tw_a%7_65, tw_a%7_66, tw_a%7_67, " \
  "tw_a%7_68, tw_a%7_69, tw_a%7_70, tw_a%7_71"
#define TW_HALF5                                 \
  "tw_a%7_80, tw_a%7_81, tw_a%7_82, tw_a%7_83, " \
  "tw_a%7_84, tw_a%7_85, tw_a%7_86, tw_a%7_87"
#define TW_HALF6                                 \
  "tw_a%7_96, tw_a%7_97, tw_a%7_98, tw_a%7_99, " \
  "tw_a%7_100, tw_a%7_101, tw_a%7_102, tw_a%7_103"

// The four instructions of a k-tile. `types` and `regs` are text.
#define TW_WGMMA(n, types, regs, a, b, add)                                                \
  "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." types " {" regs "}, " a ", " b ", " add \
  ", 1, 1, %3, %4;\n"
#define TW_WGMMA_NEXT(n, types, regs) \
  "add.s64 a, a, %5;\nadd.s64 b, b, %6;\n" TW_WGMMA(n, types, regs, "a", "b", "always")
#define TW_WGMMA_TILE(n, types, regs)                                                \
  asm volatile(                                                                      \
      "{ .reg .pred first, always;\n.reg .b64 a, b;\n"                               \
      "setp.ne.b32 first, %2, 0;\nsetp.eq.b32 always, %2, %2;\n"                     \
      "mov.b64 a, %0;\nmov.b64 b, %1;\n" TW_WGMMA(n, types, regs, "a", "b", "first") \
          TW_WGMMA_NEXT(n, types, regs) TW_WGMMA_NEXT(n, types, regs)                \
              TW_WGMMA_NEXT(n, types, regs) "}"                                      \
      :                                                                              \
      : "l"(a_desc), "l"(b_desc), "r"(accumulate), "n"(kTransA), "n"(kTransB),       \
        "n"(kTransA != 0 ? 128 : 2), "n"(kTransB != 0 ? 128 : 2), "n"(kStrip)        \
      : "memory")
#define TW_WGMMA_TYPES(n, regs)          \
  if constexpr (kType == Type::kBF16) {  \
    TW_WGMMA_TILE(n, "bf16.bf16", regs); \
  } else {                               \
    TW_WGMMA_TILE(n, "f16.f16", regs);   \
  }

/// d[64][kN] (+)= A[64][64] * B[64][kN], types bf16 or f16, in four instructions of 16 k each; d
/// are the accumulators of strip kStrip (0 or 1; 0 if kN > 192). Warp w of the warpgroup has rows
/// 16 w to 16 w + 15; with g = lane / 4, t = lane % 4 a thread holds, for every eight columns j,
///   d[4j], d[4j+1] = D[16w + g][8j + 2t, 8j + 2t + 1]
///   d[4j+2], d[4j+3] = D[16w + g + 8][8j + 2t, 8j + 2t + 1]
template <Type kType, int kN, int kTransA, int kTransB, int kStrip>
__device__ __forceinline__ void Wgmma(u64 a_desc, u64 b_desc, int accumulate) {
  static_assert(kType == Type::kBF16 || kType == Type::kF16, "16-bit inputs");
  static_assert(kN % 16 == 0 && kN >= 32 && kN <= (kStrip == 0 ? 256 : 192), "columns");
  if constexpr (kN == 32) {
    TW_WGMMA_TYPES("32", TW_REG0)
  } else if constexpr (kN == 48) {
    TW_WGMMA_TYPES("48", TW_REG0 ", " TW_HALF1)
  } else if constexpr (kN == 64) {
    TW_WGMMA_TYPES("64", TW_REG0 ", " TW_REG1)
  } else if constexpr (kN == 80) {
    TW_WGMMA_TYPES("80", TW_REG0 ", " TW_REG1 ", " TW_HALF2)
  } else if constexpr (kN == 96) {
    TW_WGMMA_TYPES("96", TW_REG0 ", " TW_REG1 ", " TW_REG2)
  } else if constexpr (kN == 112) {
    TW_WGMMA_TYPES("112", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_HALF3)
  } else if constexpr (kN == 128) {
    TW_WGMMA_TYPES("128", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3)
  } else if constexpr (kN == 144) {
    TW_WGMMA_TYPES("144", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_HALF4)
  } else if constexpr (kN == 160) {
    TW_WGMMA_TYPES("160", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4)
  } else if constexpr (kN == 176) {
    TW_WGMMA_TYPES("176", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4 ", " TW_HALF5)
  } else if constexpr (kN == 192) {
    TW_WGMMA_TYPES("192", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4 ", " TW_REG5)
  } else if constexpr (kN == 208) {
    TW_WGMMA_TYPES("208", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4 ", " TW_REG5
                                  ", " TW_HALF6)
  } else if constexpr (kN == 224) {
    TW_WGMMA_TYPES("224", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4 ", " TW_REG5
                                  ", " TW_REG6)
  } else if constexpr (kN == 256) {
    TW_WGMMA_TYPES("256", TW_REG0 ", " TW_REG1 ", " TW_REG2 ", " TW_REG3 ", " TW_REG4 ", " TW_REG5
                                  ", " TW_REG6 ", " TW_REG7)
  } else {
    static_assert(kN == 32, "no list of that many accumulators");
  }
}

/// out[i] = accumulator kFirst + i of strip kStrip, kCount of them, after a wait for what computes them; both
/// are multiples of 4.
template <int kStrip, int kFirst, int kCount>
__device__ __forceinline__ void WgmmaRead(float* out) {
  static_assert(kFirst % 4 == 0 && kCount % 4 == 0, "fours");
  if constexpr (kCount > 0) {
    asm volatile(
        "mov.f32 %0, tw_a%4_%5;\nmov.f32 %1, tw_a%4_%6;\nmov.f32 %2, tw_a%4_%7;\n"
        "mov.f32 %3, tw_a%4_%8;"
        : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
        : "n"(kStrip), "n"(kFirst), "n"(kFirst + 1), "n"(kFirst + 2), "n"(kFirst + 3)
        : "memory");
    WgmmaRead<kStrip, kFirst + 4, kCount - 4>(out + 4);
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
#undef TW_HALF6
#undef TW_HALF5
#undef TW_HALF4
#undef TW_HALF3
#undef TW_HALF2
#undef TW_HALF1

}  // namespace tw

#endif
