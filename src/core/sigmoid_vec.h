#pragma once

#include "core/simd.h"

/// For kernel files only, each of which keeps its own copy (core/simd.h).

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

/// x * sigmoid(y) from e = exp(-|y|) <= 1, which cannot overflow: x / (1 + e) for y >= 0, x e / (1
/// + e) below.
inline F32Vec TimesSigmoid(F32Vec x, F32Vec y) {
  const F32Vec zero = Splat(0.0f);
  F32Vec e = ExpNonPositive(SelectVec(y > zero, -y, y));
  // ExpNonPositive stops at 1.2e-38, which times a huge x would show.
  e = SelectVec(y < Splat(-87.3f), zero, e);
  return SelectVec(y < zero, x * e, x) / (e + 1.0f);
}

inline F32Vec Silu(F32Vec x) { return TimesSigmoid(x, x); }

}  // namespace
}  // namespace tilewright
