#pragma once

// Element conversions, compiled once for each instruction set. A file that has F16C defines
// TILEWRIGHT_F16C before including this.

#include <cstdint>

#include "core/numeric.h"
#include "ops/copy/cpu/convert.h"

#if defined(TILEWRIGHT_F16C)
#include <immintrin.h>
#endif

namespace tilewright {
namespace {

inline void ToF16(const float* src, std::uint16_t* dst, std::int64_t count) {
  std::int64_t i = 0;
#if defined(TILEWRIGHT_F16C)
  for (; i + 8 <= count; i += 8) {
    const __m128i half =
        _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), half);
  }
#endif
  for (; i < count; ++i) dst[i] = F32ToF16(src[i]);
}

inline void FromF16(const std::uint16_t* src, float* dst, std::int64_t count) {
  std::int64_t i = 0;
#if defined(TILEWRIGHT_F16C)
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(dst + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  }
#endif
  for (; i < count; ++i) dst[i] = F16ToF32(src[i]);
}

inline void ToBF16(const float* src, std::uint16_t* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) dst[i] = F32ToBF16(src[i]);
}

inline void FromBF16(const std::uint16_t* src, float* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) dst[i] = BF16ToF32(src[i]);
}

/// d = max |x| / 127; q = round(x / d), halves away from zero: the format's own rule. A value that
/// is not finite makes d NaN.
inline void ToQ8_0(const float* src, unsigned char* dst, std::int64_t count) {
  for (std::int64_t at = 0; at < count; at += 32, dst += 34) {
    float amax = 0.0f;
    bool finite = true;
    for (int i = 0; i < 32; ++i) {
      const float magnitude = __builtin_fabsf(src[at + i]);
      finite = finite && magnitude <= 3.4028235e38f;
      amax = magnitude > amax ? magnitude : amax;
    }
    const float d = finite ? amax / 127.0f : __builtin_nanf("");
    const std::uint16_t half = F32ToF16(d);
    dst[0] = static_cast<unsigned char>(half & 0xff);
    dst[1] = static_cast<unsigned char>(half >> 8);
    const float inverse = finite && d > 0 ? 1.0f / d : 0.0f;
    for (int i = 0; i < 32; ++i) {
      const float scaled = finite ? src[at + i] * inverse : 0.0f;
      const int q = static_cast<int>(scaled + (scaled >= 0 ? 0.5f : -0.5f));
      dst[2 + i] = static_cast<unsigned char>(static_cast<signed char>(q > 127    ? 127
                                                                       : q < -127 ? -127
                                                                                  : q));
    }
  }
}

inline void Bytes(const void* src, void* dst, std::int64_t count) {
  __builtin_memmove(dst, src, static_cast<std::size_t>(count));
}

bool Convert(DataType from, DataType to, const void* src, void* dst, std::int64_t count) {
  const auto* f32 = static_cast<const float*>(src);
  const auto* half = static_cast<const std::uint16_t*>(src);
  auto* out32 = static_cast<float*>(dst);
  auto* out16 = static_cast<std::uint16_t*>(dst);
  if (from == to && from == DataType::kF32) return Bytes(src, dst, count * 4), true;
  if (from == to && (from == DataType::kF16 || from == DataType::kBF16))
    return Bytes(src, dst, count * 2), true;
  if (from == DataType::kF32 && to == DataType::kF16) return ToF16(f32, out16, count), true;
  if (from == DataType::kF32 && to == DataType::kBF16) return ToBF16(f32, out16, count), true;
  if (from == DataType::kF32 && to == DataType::kQ8_0)
    return ToQ8_0(f32, static_cast<unsigned char*>(dst), count), true;
  if (from == DataType::kF16 && to == DataType::kF32) return FromF16(half, out32, count), true;
  if (from == DataType::kBF16 && to == DataType::kF32) return FromBF16(half, out32, count), true;
  if (from == DataType::kF16 && to == DataType::kBF16) {
    for (std::int64_t i = 0; i < count; ++i) out16[i] = F32ToBF16(F16ToF32(half[i]));
    return true;
  }
  if (from == DataType::kBF16 && to == DataType::kF16) {
    for (std::int64_t i = 0; i < count; ++i) out16[i] = F32ToF16(BF16ToF32(half[i]));
    return true;
  }
  return false;
}

}  // namespace
}  // namespace tilewright
