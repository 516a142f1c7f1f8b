#pragma once

#include "device/cuda/kernels/silu.cuh"

// tanh, and gelu as the activations of models approximate it.

namespace tw {

/// 2^x within 2 units in the last place; 0 for minus infinity.
TW_DEVICE float Exp2(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return __builtin_exp2f(x);
#endif
}

/// tanh(x) within 4 units in the last place; NaN stays NaN. Small x by x + x^3 p(x^2), with the p of
/// core/tanh_vec.h, since 1 - e^-2x would cancel; others by (1 - e^-2|x|) / (1 + e^-2|x|). The
/// instruction tanh.approx has 11 bits.
TW_DEVICE float TanhOf(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  const float square = x * x;
  float p = Fma(square, -0.006096714176237583f, 0.020997179672122f);
  p = Fma(p, square, -0.05385090783238411f);
  p = Fma(p, square, 0.1333276927471161f);
  p = Fma(p, square, -0.333333283662796f);
  const float e = Exp2(magnitude * -2.88539008f);  // -2 / ln 2
  const float large = (1.0f - e) * Reciprocal(1.0f + e);
  const float other = x < 0.0f ? -large : large;
  return magnitude < 0.625f ? Fma(x * square, p, x) : other;
}

/// x / 2 * (1 + tanh(u)) is x times the sigmoid of 2 u, without the cancellation for negative u.
TW_DEVICE float GeluOf(float x) {
  constexpr float kTwiceRoot = 1.5957691216f;  // 2 sqrt(2 / pi)
  const float y = x * Fma(x * x, kTwiceRoot * 0.044715f, kTwiceRoot);
  return x * Reciprocal(1.0f + ExpOf(-y));
}

}  // namespace tw
