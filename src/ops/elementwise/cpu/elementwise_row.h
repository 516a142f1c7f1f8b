#pragma once

#include "core/simd.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

/// x * sigmoid(x) from e = exp(-|x|) <= 1, which cannot overflow: x / (1 + e) for x >= 0, x e / (1
/// + e) below.
inline F32Vec Silu(F32Vec x) {
  const F32Vec zero = Splat(0.0f);
  F32Vec e = ExpNonPositive(SelectVec(x > zero, -x, x));
  // ExpNonPositive stops at 1.2e-38, which times a huge x would show.
  e = SelectVec(x < Splat(-87.3f), zero, e);
  return SelectVec(x < zero, x * e, x) / (e + 1.0f);
}

struct AddOf {
  static F32Vec Apply(F32Vec a, F32Vec b) { return a + b; }
};
struct MulOf {
  static F32Vec Apply(F32Vec a, F32Vec b) { return a * b; }
};
struct SiluOf {
  static F32Vec Apply(F32Vec a, F32Vec) { return Silu(a); }
};
struct SwiGluOf {
  static F32Vec Apply(F32Vec a, F32Vec b) { return Silu(a) * b; }
};

/// The tail runs through the same vector code, so that an element's result does not depend on where
/// a range was cut.
template <class Op>
void ForEach(const float* a, const float* b, float* out, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreVec(out + i, Op::Apply(LoadVec(a + i), LoadVec(b + i)));
  if (i < n) {
    StoreVecPart(out + i, Op::Apply(LoadVecPart(a + i, n - i), LoadVecPart(b + i, n - i)), n - i);
  }
}

}  // namespace
}  // namespace tilewright
