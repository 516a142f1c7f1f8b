#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/predicated.cuh"
#include "device/cuda/kernels/types.cuh"
#include "ops/gemm/cuda/gemm_params.h"

// From accumulators to global memory. mma.sync m16n8 and wgmma m64nN leave the same picture: with
// g = lane / 4 and t = lane % 4, a thread has columns 8j + 2t and 8j + 2t + 1 of rows g and g + 8
// of a 16-row strip, in acc[4j .. 4j + 3].
//
// There are 16 to 64 copies of each store in a kernel, so they are written for small code: compile
// time is mostly theirs.

namespace tw {

/// Transposes a 4 x 4 matrix of words over the four lanes of a quad: word i of lane t goes to word
/// t of lane i. All 32 lanes call it; t = lane % 4.
TW_DEVICE void TransposeQuad(u32 (&v)[4], int t) {
  TW_UNROLL
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = (t & step) != 0;
    TW_UNROLL
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      // The lower lane gives away word i + step, the upper one word i.
      const u32 received = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + step], step);
      if (upper) {
        v[i] = received;
      } else {
        v[i + step] = received;
      }
    }
  }
}

/// Stores the first `left` (any number) of the eight 16-bit elements in v; 16 bytes at once if
/// `wide`, that is, if `at` is aligned for it.
TW_DEVICE void StoreOctet(u16* at, u32 (&v)[4], int left, bool wide) {
  if (wide && left >= 8) {
    StoreGlobal16(at, v);
  } else {
    if (left > 8) left = 8;
    TW_NO_UNROLL
    for (; left > 0; --left) {
      *at++ = static_cast<u16>(v[0]);
      TW_UNROLL
      for (int i = 0; i < 3; ++i) v[i] = FunnelRight(v[i], v[i + 1], 16);
      v[3] >>= 16;
    }
  }
}

/// Stores rows row0 + g and row0 + g + 8, columns col0 to col0 + 2 kCount - 1, of D = alpha * acc
/// (+ beta * C unless kTypeC is kNone). All lanes of the warp call it, also those outside of m x n.
template <Type kTypeC, Type kTypeD, int kCount>
TW_DEVICE void StoreStrip(const GemmOutput& out, const float (&acc)[kCount], int row0, int col0,
                          int lane) {
  constexpr int kBlocks = kCount / 4;  // of eight columns
  constexpr int kBytes = FloatBytes<kTypeD>();
  constexpr int kWide = kTypeD == Type::kF32 ? 8 : 16;
  const bool wide =
      (reinterpret_cast<u64>(out.d) % kWide | static_cast<u64>(out.ldd) * kBytes % kWide) == 0;
  const int t = lane % 4;
  TW_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + lane / 4 + 8 * half;
    const int left = row < out.m ? out.n - col0 : 0;  // columns of this row from col0 on
    const u64 d_line = reinterpret_cast<u64>(out.d) + (row * out.ldd + col0) * kBytes;

    float value[2 * kBlocks];
    TW_UNROLL
    for (int j = 0; j < kBlocks; ++j) {
      value[2 * j] = out.alpha * acc[4 * j + 2 * half];
      value[2 * j + 1] = out.alpha * acc[4 * j + 2 * half + 1];
    }
    if constexpr (kTypeC != Type::kNone) {
      if (out.beta != 0.0f) {
        constexpr int kBytesC = FloatBytes<kTypeC>();
        const void* c_pair =
            static_cast<const char*>(out.c) + (row * out.ldc + col0 + 2 * t) * kBytesC;
        TW_UNROLL
        for (int i = 0; i < 2 * kBlocks; ++i) {
          const int col = i / 2 * 8 + i % 2;
          value[i] += out.beta * LoadIf<kTypeC>(c_pair, col, col + 2 * t < left);
        }
      }
    }

    if constexpr (kTypeD == Type::kF32) {
      float* at = reinterpret_cast<float*>(d_line) + 2 * t;
      TW_UNROLL
      for (int j = 0; j < kBlocks; ++j) {
        StoreFloats(at + 8 * j, value[2 * j], value[2 * j + 1], left - 2 * t - 8 * j, wide);
      }
    } else {
      u32 word[kBlocks];
      TW_UNROLL
      for (int j = 0; j < kBlocks; ++j) {
        word[j] = PackPairOf<kTypeD>(value[2 * j], value[2 * j + 1]);
      }
      // Of four blocks a thread has two columns each: 4 x 4 words over a quad, transposed so that
      // each thread has one whole block, 16 bytes.
      u16* at = reinterpret_cast<u16*>(d_line) + 8 * t;
      TW_UNROLL
      for (int j = 0; j + 4 <= kBlocks; j += 4) {
        u32 v[4] = {word[j], word[j + 1], word[j + 2], word[j + 3]};
        TransposeQuad(v, t);
        StoreOctet(at + 8 * j, v, left - 8 * t - 8 * j, wide);
      }
      // Fewer than four blocks: two columns at a time.
      u16* pair = reinterpret_cast<u16*>(d_line) + 2 * t;
      TW_UNROLL
      for (int j = kBlocks / 4 * 4; j < kBlocks; ++j) {
        if (2 * t + 8 * j < left) pair[8 * j] = static_cast<u16>(word[j]);
        if (2 * t + 8 * j + 1 < left) pair[8 * j + 1] = static_cast<u16>(word[j] >> 16);
      }
    }
  }
}

}  // namespace tw
