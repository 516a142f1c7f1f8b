#pragma once

#include <cstdint>

#include "core/numeric.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/// Vectors as wide as those of the instruction set that this file is compiled for, using the
/// compilers' vector extension: one kernel source, built by *_scalar.cc (baseline x86-64: 4 lanes),
/// *_avx2.cc (8) and *_avx512.cc (16). For kernel files only, each of which keeps its own copy:
/// everything is in an unnamed namespace, so that no function compiled for AVX-512 can be linked
/// into code for an older instruction set.

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): intended, see above

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float F32Vec __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t I32Vec __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t U32Vec __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t U16Vec __attribute__((vector_size(2 * kLanes)));  // one for each f32 lane

inline F32Vec LoadVec(const float* p) {
  F32Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void StoreVec(float* p, F32Vec v) { __builtin_memcpy(p, &v, sizeof v); }

/// The first `n` < kLanes elements; the other lanes are 0.
inline F32Vec LoadVecPart(const float* p, std::int64_t n) {
  float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return LoadVec(lanes);
}
inline void StoreVecPart(float* p, F32Vec v, std::int64_t n) {
  float lanes[kLanes];
  StoreVec(lanes, v);
  for (std::int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

/// x in every lane. (0 - x would lose the sign of -0; x - 0 keeps it.)
inline F32Vec Splat(float x) { return x - F32Vec{}; }

/// kLanes adjacent bytes, widened. (Written with intrinsics because GCC converts vectors of eight
/// bytes one by one.)
inline I32Vec LoadU8(const std::uint8_t* p) {
#if defined(__AVX512F__)
  return (I32Vec)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  return (I32Vec)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  I32Vec v = {};
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
#endif
}
inline I32Vec LoadI8(const std::int8_t* p) {
#if defined(__AVX512F__)
  return (I32Vec)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  return (I32Vec)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  I32Vec v = {};
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
#endif
}
/// Stores lanes, which must be within [-128, 127].
inline void StoreI8(void* p, I32Vec v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  const __m256i wide = (__m256i)v;
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packs_epi16(words, words));
#else
  auto* out = static_cast<std::int8_t*>(p);
  for (int i = 0; i < kLanes; ++i) out[i] = static_cast<std::int8_t>(v[i]);
#endif
}
inline F32Vec FloatOf(I32Vec v) { return __builtin_convertvector(v, F32Vec); }

/// Sum of the lanes, added by halves in a fixed order.
inline float SumLanes(F32Vec v) {
  float lanes[kLanes];
  StoreVec(lanes, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

/// The largest lane; none is negative.
inline std::int32_t MaxLane(I32Vec v) {
#if defined(__AVX512F__)
  const __m256i half = _mm256_max_epi32(_mm512_castsi512_si256((__m512i)v),
                                        _mm512_extracti64x4_epi64((__m512i)v, 1));
#elif defined(__AVX2__)
  const __m256i half = (__m256i)v;
#else
  std::int32_t most = 0;
  for (int i = 0; i < kLanes; ++i) most = v[i] > most ? v[i] : most;
  return most;
#endif
#if defined(__AVX2__)
  __m128i x = _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1));
  return _mm_cvtsi128_si32(x);
#endif
}

inline F32Vec SelectVec(I32Vec mask, F32Vec yes, F32Vec no) { return mask ? yes : no; }

/// kLanes adjacent elements of another format, exactly as core/numeric.h converts them.
inline F32Vec LoadF16(const std::uint16_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = F16ToF32(p[i]);
  return LoadVec(lanes);
#endif
}
inline void StoreF16(std::uint16_t* p, F32Vec v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  float lanes[kLanes];
  StoreVec(lanes, v);
  for (int i = 0; i < kLanes; ++i) p[i] = F32ToF16(lanes[i]);
#endif
}
inline F32Vec LoadBF16(const std::uint16_t* p) {
  U16Vec narrow;
  __builtin_memcpy(&narrow, p, sizeof narrow);
  const U32Vec bits = __builtin_convertvector(narrow, U32Vec) << 16;
  F32Vec v;
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
}
inline void StoreBF16(std::uint16_t* p, F32Vec v) {
  U32Vec bits;
  __builtin_memcpy(&bits, &v, sizeof bits);
  const U32Vec rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const U32Vec quiet_nan = (bits >> 16) | 0x40u;
  const U32Vec result = (v != v) ? quiet_nan : rounded;
  const U16Vec narrow = __builtin_convertvector(result, U16Vec);
  __builtin_memcpy(p, &narrow, sizeof narrow);
}

/// e^x for x <= 0, within 1.5 units in the last place down to -87.3; smaller x give e^-87.3
/// (1.2e-38). NaN stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2, where ln 2 is split in two parts
/// of which the first has 10 bits, so that n times it is exact (Cody and Waite); then the Taylor
/// series to r^7, whose remainder is 5e-9.
inline F32Vec ExpNonPositive(F32Vec x) {
  const F32Vec lowest = Splat(-87.3f);
  x = SelectVec(x < lowest, lowest, x);
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
  const F32Vec magic = Splat(12582912.0f);
  const F32Vec shifted = x * 1.44269504f + magic;
  const F32Vec n = shifted - magic;
  const F32Vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  F32Vec p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = (p * r) * r + r + 1.0f;
  I32Vec bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  // The bits of 1.5 * 2^23 are 0x4b400000; n >= -126, so the exponent stays in the normal range.
  const I32Vec power = (bits - 0x4b400000 + 127) << 23;
  F32Vec scale;
  __builtin_memcpy(&scale, &power, sizeof scale);
  return p * scale;
}

}  // namespace
}  // namespace tilewright
