#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/tanh.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/elementwise_params.h"

// A function of one or two operands, element by element: eight adjacent elements a thread.

namespace tw {

using tilewright::cuda::ElementwiseFunction;
using tilewright::cuda::ElementwiseOperand;
using tilewright::cuda::ElementwiseParams;

/// NaN stays. The exponent is at most 1.702 times the limit.
TW_DEVICE float ClampedSwiGluOf(float a, float b, float limit) {
  const float gate = a > limit ? limit : a;
  const float up = b > limit ? limit : b < -limit ? -limit : b;
  return gate * (1.0f / (1.0f + ExpOf(-1.702f * gate))) * (up + 1.0f);
}

TW_DEVICE float FunctionOf(const ElementwiseParams& p, float a, float b) {
  switch (p.function) {
    case ElementwiseFunction::kAdd:
      return a + b;
    case ElementwiseFunction::kMul:
      return a * b;
    case ElementwiseFunction::kSilu:
      return SiluOf(a);
    case ElementwiseFunction::kSwiGlu:
      return SiluOf(a) * b;
    case ElementwiseFunction::kGelu:
      return GeluOf(a);
    case ElementwiseFunction::kGeGlu:
      return GeluOf(a) * b;
    case ElementwiseFunction::kClampedSwiGlu:
      return ClampedSwiGluOf(a, b, p.limit);
    default:
      return TanhOf(a * p.inverse_softcap) * p.softcap;
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
    if (!tilewright::cuda::ElementwiseIsUnary(p.function)) LoadPack<kTypeB, kCount>(p.b.data, b, y);
    TW_UNROLL
    for (int i = 0; i < kCount; ++i) x[i] = FunctionOf(p, x[i], y[i]);
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
