#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/elementwise_params.h"

// A function of one or two operands, element by element: eight adjacent elements a thread.

namespace tw {

using tilewright::cuda::ElementwiseFunction;
using tilewright::cuda::ElementwiseOperand;
using tilewright::cuda::ElementwiseParams;

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

TW_DEVICE float FunctionOf(ElementwiseFunction function, float a, float b) {
  switch (function) {
    case ElementwiseFunction::kAdd:
      return a + b;
    case ElementwiseFunction::kMul:
      return a * b;
    case ElementwiseFunction::kSilu:
      return SiluOf(a);
    default:
      return SiluOf(a) * b;
  }
}

/// Types: a, b and out.
template <Type kTypeA, Type kTypeB, Type kTypeD>
struct Elementwise {
  const ElementwiseParams& p;

  /// kCount elements at the given offsets; every load comes before the store, which may be over a
  /// or b.
  template <int kCount>
  TW_DEVICE void Elements(i64 a, i64 b, i64 out) const {
    float x[kCount], y[kCount] = {};
    LoadPack<kTypeA, kCount>(p.a.data, a, x);
    if (p.function != ElementwiseFunction::kSilu) LoadPack<kTypeB, kCount>(p.b.data, b, y);
    TW_UNROLL
    for (int i = 0; i < kCount; ++i) x[i] = FunctionOf(p.function, x[i], y[i]);
    StorePack<kTypeD, kCount>(p.out.data, out, x);
  }

  /// `item`: of all rows.
  TW_DEVICE void Run(u32 item) const {
    if (item >= p.items) return;
    const u32 row = item / p.row_items;
    const i64 c =
        static_cast<i64>(item % p.row_items) * tilewright::cuda::ElementwiseElements(p.wide);
    const u32 i0 = row % p.extents[0], outer = row / p.extents[0];
    const u32 i1 = outer % p.extents[1], i2 = outer / p.extents[1];
    const auto at = [&](const ElementwiseOperand& x) {
      return c + i0 * x.row[0] + i1 * x.row[1] + i2 * x.row[2];
    };
    const i64 a = at(p.a), b = at(p.b), out = at(p.out);
    if (p.wide == 0) {
      Elements<1>(a, b, out);
    } else if (c + 8 <= p.cols) {
      Elements<8>(a, b, out);
    } else {
      for (int i = 0; c + i < p.cols; ++i) Elements<1>(a + i, b + i, out + i);
    }
  }
};

}  // namespace tw
