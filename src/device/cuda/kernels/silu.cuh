#pragma once

#include "device/cuda/kernels/numeric.cuh"

// x / (1 + e^-x): the same bits in every kernel that evaluates it.

namespace tw {

/// e^x within 2 units of the last place for x of -86 and more (below it is e^-86, above 88.73
/// infinity); of a NaN it is some number. Cody and Waite reduction, x = n ln 2 + r, and a Taylor
/// series: the same bits on the device and on the host.
TW_DEVICE float ExpOf(float x) {
  x = x < 89.0f ? x : 89.0f;
  x = x > -86.0f ? x : -86.0f;
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float n = Fma(x, 1.44269504f, kMagic) - kMagic;
  const float r = Fma(n, -1.42860677e-6f, Fma(n, -0.693145752f, x));  // ln 2 in two parts
  float p = 1.0f / 5040;
  p = Fma(p, r, 1.0f / 720);
  p = Fma(p, r, 1.0f / 120);
  p = Fma(p, r, 1.0f / 24);
  p = Fma(p, r, 1.0f / 6);
  p = Fma(p, r, 0.5f);
  p = Fma(p, r, 1.0f);
  p = Fma(p, r, 1.0f);
  // 2^n in two factors: 2^128 is no f32.
  return p * FloatOf(static_cast<u32>(static_cast<int>(n) + 126) << 23) * 2.0f;
}

/// 1 / x within a unit of the last place.
TW_DEVICE float Reciprocal(float x) {
#if defined(__CUDACC__)
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

TW_DEVICE float SiluOf(float x) { return x * Reciprocal(1.0f + ExpOf(-x)); }

}  // namespace tw
