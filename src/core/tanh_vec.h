#pragma once

#include "core/simd.h"

/// For kernel files only, each of which keeps its own copy (core/simd.h).

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): intended, see core/simd.h

/// tanh(x) within 3 units in the last place; NaN stays NaN. Small x by x + x^3 p(x^2), where p
/// interpolates the rest of the series at Chebyshev's points, since 1 - e^-2x would cancel; others
/// by (1 - e^-2|x|) / (1 + e^-2|x|).
inline F32Vec TanhVec(F32Vec x) {
  const F32Vec zero = Splat(0.0f);
  const F32Vec magnitude = SelectVec(x < zero, -x, x);
  const F32Vec square = x * x;
  F32Vec p = square * -0.006096714176237583f + 0.020997179672122f;
  p = p * square - 0.05385090783238411f;
  p = p * square + 0.1333276927471161f;
  p = p * square - 0.333333283662796f;
  const F32Vec e = ExpNonPositive(magnitude * -2.0f);
  const F32Vec large = (1.0f - e) / (e + 1.0f);
  return SelectVec(magnitude < Splat(0.625f), x + x * square * p,
                   SelectVec(x < zero, -large, large));
}

/// limit * tanh(x / limit) from limit and its inverse, both positive.
inline F32Vec SoftcapVec(F32Vec x, float limit, float inverse) {
  return TanhVec(x * inverse) * limit;
}

}  // namespace
}  // namespace tilewright
