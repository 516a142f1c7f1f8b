#pragma once

#include <cstdint>

/// Vectors as wide as the instruction set this file is compiled for, by the compilers' vector
/// extension: one kernel source, built by *_scalar.cc (baseline x86-64: 4 lanes), *_avx2.cc (8) and
/// *_avx512.cc (16). For kernel files only, each of which keeps its own copy: everything is in an
/// unnamed namespace, so that no function compiled for AVX-512 can be linked into code for less.

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): the point, see above

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float F32Vec __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t I32Vec __attribute__((vector_size(4 * kLanes)));

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

/// Sum of the lanes by halves: a fixed order.
inline float SumLanes(F32Vec v) {
  float lanes[kLanes];
  StoreVec(lanes, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

inline F32Vec SelectVec(I32Vec mask, F32Vec yes, F32Vec no) { return mask ? yes : no; }

/// e^x for x <= 0 within 1.5 units of the last place down to -87.3; smaller x give e^-87.3
/// (1.2e-38). NaN stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts of which the
/// first has 10 bits, so that n times it is exact (Cody and Waite); the Taylor series to r^7, whose
/// remainder is 5e-9.
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
