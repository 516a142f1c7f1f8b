#pragma once

#include "device/cuda/kernels/types.cuh"
#include "ops/gemm/cuda/gemm_params.h"

// From accumulators to global memory. mma.sync m16n8 and wgmma m64nN leave the same picture: with
// g = lane / 4 and t = lane % 4, a thread has columns 8j + 2t and 8j + 2t + 1 of rows g and g + 8 of
// a 16-row strip, in acc[4j .. 4j + 3].

namespace tw {

template <Type kType>
__device__ __forceinline__ constexpr int TypeBytes() {
  return kType == Type::kF32 ? 4 : 2;
}

/// Two f32 rounded to nearest even; `low` goes to the lower address.
template <Type kType>
__device__ __forceinline__ u32 PackPair(float low, float high) {
  static_assert(kType == Type::kBF16 || kType == Type::kF16, "16-bit types");
  u32 packed;
  if constexpr (kType == Type::kBF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

template <Type kType>
__device__ __forceinline__ float LoadAsFloat(const void* base, i64 index) {
  if constexpr (kType == Type::kF32) {
    return static_cast<const float*>(base)[index];
  } else {
    const u16 bits = static_cast<const u16*>(base)[index];
    if constexpr (kType == Type::kBF16) {
      return __uint_as_float(static_cast<u32>(bits) << 16);
    } else {
      float value;
      asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
      return value;
    }
  }
}

/// Transposes a 4 x 4 matrix of words over the four lanes of a quad: word i of lane t goes to word t
/// of lane i. All 32 lanes call it.
__device__ __forceinline__ void TransposeQuad(u32 (&v)[4], int t) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = (t & step) != 0;
#pragma unroll
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

/// One thread's stores, whatever strip and half it is at. kTypeC is kNone without addend.
template <Type kTypeC, Type kTypeD>
struct OutputWriter {
  const GemmOutput& out;
  bool wide;      // 16-byte stores (8-byte ones of f32) are aligned
  bool with_c;    // c is to be read
  int t;          // lane % 4

  __device__ __forceinline__ OutputWriter(const GemmOutput& output, int lane)
      : out(output), t(lane % 4) {
    constexpr int kAlign = kTypeD == Type::kF32 ? 8 : 16;
    wide = (reinterpret_cast<u64>(out.d) % kAlign |
            static_cast<u64>(out.ldd) * TypeBytes<kTypeD>() % kAlign) == 0;
    with_c = kTypeC != Type::kNone && out.beta != 0.0f;
  }

  /// alpha * value, plus beta * c where there is one.
  __device__ __forceinline__ float Scale(float value, int row, int col) const {
    float result = out.alpha * value;
    if constexpr (kTypeC != Type::kNone) {
      if (with_c && row < out.m && col < out.n) {
        result += out.beta * LoadAsFloat<kTypeC>(out.c, row * out.ldc + col);
      }
    }
    return result;
  }

  __device__ __forceinline__ void StoreWord(u32 word, int row, int col) const {
    u16* at = static_cast<u16*>(out.d) + (row * out.ldd + col);
    if (row < out.m && col < out.n) at[0] = static_cast<u16>(word);
    if (row < out.m && col + 1 < out.n) at[1] = static_cast<u16>(word >> 16);
  }

  /// Eight adjacent elements of one row.
  __device__ __forceinline__ void StoreOctet(const u32 (&v)[4], int row, int col) const {
    if (wide && col + 8 <= out.n) {
      if (row < out.m) {
        u16* at = static_cast<u16*>(out.d) + (row * out.ldd + col);
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"(at), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                     : "memory");
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) StoreWord(v[i], row, col + 2 * i);
    }
  }

  __device__ __forceinline__ void StoreFloats(float x, float y, int row, int col) const {
    float* at = static_cast<float*>(out.d) + (row * out.ldd + col);
    if (wide && col + 2 <= out.n) {
      if (row < out.m) {
        asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(x), "f"(y) : "memory");
      }
    } else {
      if (row < out.m && col < out.n) at[0] = x;
      if (row < out.m && col + 1 < out.n) at[1] = y;
    }
  }

  /// Stores rows row0 + g and row0 + g + 8 and columns col0 to col0 + 2 kCount - 1 of a strip. All
  /// lanes of the warp call it, also those outside of m x n.
  template <int kCount>
  __device__ __forceinline__ void StoreStrip(const float (&acc)[kCount], int row0, int col0,
                                             int lane) const {
    constexpr int kBlocks = kCount / 4;  // of eight columns
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + lane / 4 + 8 * half;
      if constexpr (kTypeD == Type::kF32) {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
          const int col = col0 + 8 * j + 2 * t;
          StoreFloats(Scale(acc[4 * j + 2 * half], row, col),
                      Scale(acc[4 * j + 2 * half + 1], row, col + 1), row, col);
        }
      } else {
        // Of four blocks a thread has two columns each: 4 x 4 words over a quad, transposed so that
        // each thread has one whole block, 16 bytes.
#pragma unroll
        for (int j = 0; j + 4 <= kBlocks; j += 4) {
          u32 v[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) v[i] = Pack(acc, j + i, half, row, col0);
          TransposeQuad(v, t);
          StoreOctet(v, row, col0 + 8 * (j + t));
        }
#pragma unroll
        for (int j = kBlocks / 4 * 4; j < kBlocks; ++j) {
          StoreWord(Pack(acc, j, half, row, col0), row, col0 + 8 * j + 2 * t);
        }
      }
    }
  }

  template <int kCount>
  __device__ __forceinline__ u32 Pack(const float (&acc)[kCount], int j, int half, int row,
                                      int col0) const {
    const int col = col0 + 8 * j + 2 * t;
    return PackPair<kTypeD>(Scale(acc[4 * j + 2 * half], row, col),
                            Scale(acc[4 * j + 2 * half + 1], row, col + 1));
  }
};

}  // namespace tw
