#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Products of bytes with sums in 32 bits, and activations rounded to such bytes. The file compiles
// for the device and for the host.

namespace tw {

/// c plus the four products of bytes of `codes`, unsigned or signed, and signed bytes of `x`. Exact.
TW_DEVICE int DotUnsigned4(u32 codes, u32 x, int c) {
#if defined(__CUDACC__)
  int sum;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(codes), "r"(x), "r"(c));
  return sum;
#else
  for (int i = 0; i < 32; i += 8)
    c += static_cast<int>(codes >> i & 0xffu) * static_cast<i8>(static_cast<u8>(x >> i));
  return c;
#endif
}
TW_DEVICE int DotSigned4(u32 codes, u32 x, int c) {
#if defined(__CUDACC__)
  int sum;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(codes), "r"(x), "r"(c));
  return sum;
#else
  for (int i = 0; i < 32; i += 8) {
    c += static_cast<i8>(static_cast<u8>(codes >> i)) * static_cast<i8>(static_cast<u8>(x >> i));
  }
  return c;
#endif
}

/// c plus the products of the two signed halves of `pair` and the two lowest signed bytes of `factors`.
/// Exact.
TW_DEVICE int DotTwo(u32 pair, u32 factors, int c) {
#if defined(__CUDACC__)
  int sum;
  asm("dp2a.lo.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(pair), "r"(factors), "r"(c));
  return sum;
#else
  for (int i = 0; i < 2; ++i) {
    c += static_cast<i16>(static_cast<u16>(pair >> (16 * i))) *
         static_cast<i8>(static_cast<u8>(factors >> (8 * i)));
  }
  return c;
#endif
}

#if defined(__CUDACC__)  // on the host mma_emulation.h stands for it
/// What lanes of a warp wrote to shared memory is there for the others. All lanes call it.
TW_DEVICE void WarpBarrier() { __syncwarp(); }
#endif

/// a * b, rounded: never a part of a fused multiply-add.
TW_DEVICE float Product(float a, float b) {
#if defined(__CUDACC__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
TW_DEVICE float Quotient(float a, float b) {
#if defined(__CUDACC__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

/// Sums of |value| < 2^22 that begin at this integer are the bits of the f32 1.5 * 2^23 + value: a
/// subtraction is their conversion.
inline constexpr int kSumBits = 0x4b400000;
inline constexpr float kSumBias = 12582912.0f;
TW_DEVICE float FloatOfSum(int sum) { return FloatOf(static_cast<u32>(sum)) - kSumBias; }

/// How 32 activations become bytes: the definition of core/i8x32.h, to the bit.
struct Int8Scale {
  float d;        ///< value = d * byte; NaN where a value is not finite
  float inverse;  ///< 127 / the largest magnitude; 0 where all bytes are 0
};
/// `magnitude`: the largest bits of the values without their signs.
TW_DEVICE Int8Scale Int8ScaleOf(u32 magnitude) {
  if (magnitude >= 0x7f800000u) return {FloatOf(0x7fc00000u), 0.0f};
  const float largest = FloatOf(magnitude);
  if (largest < 0x1p-100f) return {0.0f, 0.0f};
  return {Quotient(largest, 127.0f), Quotient(127.0f, largest)};
}
/// The byte of a value in the lowest byte of the word; nearest, ties to even. The other bytes are
/// any.
TW_DEVICE u32 Int8Of(float value, float inverse) {
  return BitsOf((inverse != 0.0f ? Product(value, inverse) : 0.0f) + kSumBias);
}

}  // namespace tw
