#pragma once

#include "device/cuda/kernels/types.cuh"

// Conversions between f32 and the narrow float formats, and bit work, without a toolkit header. The
// file compiles for the device (NVRTC or nvcc) and for the host, where a test holds every function
// to core/numeric.h: what a kernel computes is computed the same way in a test.

#if defined(__CUDACC__)
#define TW_DEVICE __device__ __forceinline__
#define TW_UNROLL _Pragma("unroll")
#define TW_NO_UNROLL _Pragma("unroll 1")
#else
#define TW_DEVICE inline
#define TW_UNROLL
#define TW_NO_UNROLL
#endif

namespace tw {

TW_DEVICE u32 BitsOf(float value) {
#if defined(__CUDACC__)
  return __float_as_uint(value);
#else
  return __builtin_bit_cast(u32, value);
#endif
}

TW_DEVICE float FloatOf(u32 bits) {
#if defined(__CUDACC__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

/// Keeps the compiler from computing a value again, from what it was computed of, in a loop.
TW_DEVICE void KeepValue(int& value) {
#if defined(__CUDACC__)
  asm("" : "+r"(value));
#else
  static_cast<void>(value);
#endif
}
TW_DEVICE void KeepValue(u32& value) {
#if defined(__CUDACC__)
  asm("" : "+r"(value));
#else
  static_cast<void>(value);
#endif
}
TW_DEVICE void KeepValue(i64& value) {
#if defined(__CUDACC__)
  asm("" : "+l"(value));
#else
  static_cast<void>(value);
#endif
}

/// Keeps the compiler from computing what is made of a value in front of this place, where it would take a
/// register through a loop.
TW_DEVICE void ComputeFromHere(int& value) {
#if defined(__CUDACC__)
  asm volatile("" : "+r"(value));
#else
  static_cast<void>(value);
#endif
}

/// a * b + c, rounded once.
TW_DEVICE float Fma(float a, float b, float c) {
#if defined(__CUDACC__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// 1 / sqrt(x), each step rounded to nearest.
TW_DEVICE float InverseRoot(float x) {
#if defined(__CUDACC__)
  return __frcp_rn(__fsqrt_rn(x));
#else
  return 1.0f / __builtin_sqrtf(x);
#endif
}

/// The low word of high:low >> shift, 0 <= shift < 32.
TW_DEVICE u32 FunnelRight(u32 low, u32 high, u32 shift) {
#if defined(__CUDACC__)
  return __funnelshift_r(low, high, shift);
#else
  return static_cast<u32>((static_cast<u64>(high) << 32 | low) >> shift);
#endif
}

/// Bytes of high:low (0 the lowest, 7 the highest) picked by the four low nibbles of `selector`,
/// each 0 to 7, into bytes 0 to 3.
TW_DEVICE u32 PermuteBytes(u32 low, u32 high, u32 selector) {
#if defined(__CUDACC__)
  return __byte_perm(low, high, selector);
#else
  const u64 bytes = static_cast<u64>(high) << 32 | low;
  u32 out = 0;
  for (int i = 0; i < 4; ++i) {
    out |= static_cast<u32>(bytes >> (8 * (selector >> (4 * i) & 7u)) & 0xffu) << (8 * i);
  }
  return out;
#endif
}

/// The same by the lowest 16 bits of `selector`, as one instruction whatever they are: a nibble of 8 and
/// more picks the byte of 8 less and is eight times its sign.
TW_DEVICE u32 PermuteSignedBytes(u32 low, u32 high, u32 selector) {
#if defined(__CUDACC__)
  u32 out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
  return out;
#else
  const u32 bytes = PermuteBytes(low, high, selector);
  u32 out = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 byte = bytes >> (8 * i) & 0xffu;
    const bool sign = (selector >> (4 * i) & 8u) != 0;
    out |= (sign ? (byte >> 7) * 0xffu : byte) << (8 * i);
  }
  return out;
#endif
}

/// a & mask | base, as one instruction: with two immediate operands the compiler makes it two.
TW_DEVICE u32 AndOr(u32 a, u32 mask, u32 base) {
#if defined(__CUDACC__)
  u32 out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(a), "r"(mask), "r"(base));
  return out;
#else
  return (a & mask) | base;
#endif
}

/// The bits of `ones` where `mask` has ones, else those of `zeros`, as one instruction.
TW_DEVICE u32 SelectBits(u32 mask, u32 ones, u32 zeros) {
#if defined(__CUDACC__)
  u32 out;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(out) : "r"(mask), "r"(ones), "r"(zeros));
  return out;
#else
  return (mask & ones) | (~mask & zeros);
#endif
}

/// Exact.
TW_DEVICE float BF16ToF32(u16 bits) { return FloatOf(static_cast<u32>(bits) << 16); }

/// The two values of a word; the lower half comes first in memory. Exact.
TW_DEVICE float LowBF16ToF32(u32 pair) { return FloatOf(pair << 16); }
TW_DEVICE float HighBF16ToF32(u32 pair) { return FloatOf(pair & 0xffff0000u); }

/// Nearest even; NaN becomes some NaN.
TW_DEVICE u16 F32ToBF16(float value) {
#if defined(__CUDACC__)
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const u32 bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

/// Exact; a NaN stays some NaN.
TW_DEVICE float F16ToF32(u16 bits) {
#if defined(__CUDACC__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const u32 sign = static_cast<u32>(bits & 0x8000u) << 16;
  const u32 magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return FloatOf(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // As a number of exponent e - 112 the bits are right, subnormals included; 2^112 corrects it.
  return FloatOf(sign | BitsOf(FloatOf(magnitude << 13) * 0x1p112f));
#endif
}

TW_DEVICE float LowF16ToF32(u32 pair) { return F16ToF32(static_cast<u16>(pair)); }
TW_DEVICE float HighF16ToF32(u32 pair) { return F16ToF32(static_cast<u16>(pair >> 16)); }

/// Nearest even, infinity from 65520 on; NaN becomes some NaN.
TW_DEVICE u16 F32ToF16(float value) {
#if defined(__CUDACC__)
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const u32 bits = BitsOf(value);
  const u32 sign = bits >> 16 & 0x8000u;
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<u16>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Subnormal: the last bit of a number near 0.5 is 2^-24, the step, so the addition rounds.
    return static_cast<u16>(sign | (BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000u));
  }
  const u32 rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<u16>(sign | (rounded - (112u << 23)) >> 13);
#endif
}

/// Two values rounded as above; `low` goes to the lower address.
TW_DEVICE u32 PackBF16(float low, float high) {
#if defined(__CUDACC__)
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return F32ToBF16(low) | static_cast<u32>(F32ToBF16(high)) << 16;
#endif
}

/// a * b + c of both halves. The host rounds twice: for results that are exact.
TW_DEVICE u32 FmaBF16x2(u32 a, u32 b, u32 c) {
#if defined(__CUDACC__)
  u32 pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
  return pair;
#else
  return PackBF16(Fma(LowBF16ToF32(a), LowBF16ToF32(b), LowBF16ToF32(c)),
                  Fma(HighBF16ToF32(a), HighBF16ToF32(b), HighBF16ToF32(c)));
#endif
}

TW_DEVICE u32 PackF16(float low, float high) {
#if defined(__CUDACC__)
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return F32ToF16(low) | static_cast<u32>(F32ToF16(high)) << 16;
#endif
}

/// a * b, a + b and a * b + c of both halves, each rounded once; the host rounds the last through f32.
TW_DEVICE u32 MulF16x2(u32 a, u32 b) {
#if defined(__CUDACC__)
  u32 pair;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
#else
  return PackF16(LowF16ToF32(a) * LowF16ToF32(b), HighF16ToF32(a) * HighF16ToF32(b));
#endif
}
/// Both halves of a times half kHalf of b: an instruction takes it from where it is.
template <int kHalf>
TW_DEVICE u32 MulF16x2ByHalf(u32 a, u32 b) {
#if defined(__CUDACC__)
  u32 pair;
  asm("{.reg .b16 h<2>;\n .reg .b32 twice;\n mov.b32 {h0, h1}, %2;\n mov.b32 twice, {h%3, h%3};\n"
      " mul.rn.f16x2 %0, %1, twice;}"
      : "=r"(pair)
      : "r"(a), "r"(b), "n"(kHalf));
  return pair;
#else
  return MulF16x2(a, PermuteBytes(b, 0, kHalf == 0 ? 0x1010u : 0x3232u));
#endif
}
TW_DEVICE u32 AddF16x2(u32 a, u32 b) {
#if defined(__CUDACC__)
  u32 pair;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
#else
  return PackF16(LowF16ToF32(a) + LowF16ToF32(b), HighF16ToF32(a) + HighF16ToF32(b));
#endif
}
TW_DEVICE u32 FmaF16x2(u32 a, u32 b, u32 c) {
#if defined(__CUDACC__)
  u32 pair;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
  return pair;
#else
  return PackF16(Fma(LowF16ToF32(a), LowF16ToF32(b), LowF16ToF32(c)),
                 Fma(HighF16ToF32(a), HighF16ToF32(b), HighF16ToF32(c)));
#endif
}

/// The larger magnitude of each half, bf16, with some sign; a NaN beside a number is left out. Needs sm_86.
TW_DEVICE u32 MaxMagnitudeBF16x2(u32 a, u32 b) {
#if defined(__CUDACC__)
  u32 pair;
  asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
#else
  const auto larger = [](u32 x, u32 y) {
    x &= 0x7fffu, y &= 0x7fffu;
    if (x > 0x7f80u || y > 0x7f80u) return x > 0x7f80u ? y : x;
    return x > y ? x : y;
  };
  return larger(a, b) | larger(a >> 16, b >> 16) << 16;
#endif
}

/// Exact; 0x7f and 0xff are NaN. Bit work: the instruction needs sm_89.
TW_DEVICE float E4M3ToF32(u8 bits) {
  const u32 sign = static_cast<u32>(bits & 0x80u) << 24;
  const u32 magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return FloatOf(sign | 0x7fc00000u);
  return FloatOf(sign | BitsOf(FloatOf(magnitude << 20) * 0x1p120f));
}

/// Nearest even; what is beyond 448, infinity included, becomes +-448; NaN stays NaN.
TW_DEVICE u8 F32ToE4M3(float value) {
  const u32 bits = BitsOf(value);
  const u32 sign = bits >> 24 & 0x80u;
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<u8>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<u8>(sign | 0x7eu);
  if (magnitude < 0x3c800000u) {
    // Subnormal: the last bit of a number near 2^14 is 2^-9, the step.
    return static_cast<u8>(sign | (BitsOf(FloatOf(magnitude) + 16384.0f) - 0x46800000u));
  }
  const u32 rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
  return static_cast<u8>(sign | (rounded - (120u << 23)) >> 20);
}

/// Bytes of one element of a plain float type.
template <Type kType>
TW_DEVICE constexpr int FloatBytes() {
  static_assert(kType == Type::kF32 || kType == Type::kF16 || kType == Type::kBF16,
                "f32, f16 or bf16");
  return kType == Type::kF32 ? 4 : 2;
}

/// The values of a word of a 16-bit type, and the word of two values.
template <Type kType>
TW_DEVICE float LowToF32(u32 pair) {
  if constexpr (kType == Type::kBF16) return LowBF16ToF32(pair);
  return LowF16ToF32(pair);
}
template <Type kType>
TW_DEVICE float HighToF32(u32 pair) {
  if constexpr (kType == Type::kBF16) return HighBF16ToF32(pair);
  return HighF16ToF32(pair);
}
template <Type kType>
TW_DEVICE u32 PackPairOf(float low, float high) {
  if constexpr (kType == Type::kBF16) return PackBF16(low, high);
  return PackF16(low, high);
}

}  // namespace tw
