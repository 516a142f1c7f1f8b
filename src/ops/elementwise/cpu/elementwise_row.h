#pragma once

#include "core/sigmoid_vec.h"
#include "core/simd.h"
#include "core/tanh_vec.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

/// (1 + tanh(u)) / 2 is sigmoid(2 u), without the cancellation for negative u.
inline F32Vec Gelu(F32Vec x) {
  constexpr float kTwiceRoot = 1.5957691216f;  // 2 sqrt(2 / pi)
  return TimesSigmoid(x, x * (x * x * (kTwiceRoot * 0.044715f) + kTwiceRoot));
}

struct AddOf {
  static F32Vec Apply(F32Vec a, F32Vec b, float, float) { return a + b; }
};
struct MulOf {
  static F32Vec Apply(F32Vec a, F32Vec b, float, float) { return a * b; }
};
struct SiluOf {
  static F32Vec Apply(F32Vec a, F32Vec, float, float) { return Silu(a); }
};
struct SwiGluOf {
  static F32Vec Apply(F32Vec a, F32Vec b, float, float) { return Silu(a) * b; }
};
struct GeluOf {
  static F32Vec Apply(F32Vec a, F32Vec, float, float) { return Gelu(a); }
};
struct GeGluOf {
  static F32Vec Apply(F32Vec a, F32Vec b, float, float) { return Gelu(a) * b; }
};
struct SoftcapOf {
  static F32Vec Apply(F32Vec a, F32Vec, float softcap, float inverse) {
    return SoftcapVec(a, softcap, inverse);
  }
};

/// c is `parameter`. The sigmoid's argument is at most 1.702 c, so that nothing overflows.
struct ClampedSwiGluOf {
  static F32Vec Apply(F32Vec a, F32Vec b, float parameter, float) {
    const F32Vec most = Splat(parameter), least = Splat(-parameter);
    // A comparison with NaN is false: it stays.
    const F32Vec gate = SelectVec(a > most, most, a);
    F32Vec up = SelectVec(b > most, most, b);
    up = SelectVec(up < least, least, up);
    return TimesSigmoid(gate, gate * 1.702f) * (up + 1.0f);
  }
};

/// The tail runs through the same vector code, so that an element's result does not depend on where
/// a range was cut.
template <class Op>
void ForEach(const float* a, const float* b, float* out, std::int64_t n, float parameter) {
  const float inverse = 1.0f / parameter;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    StoreVec(out + i, Op::Apply(LoadVec(a + i), LoadVec(b + i), parameter, inverse));
  if (i < n) {
    StoreVecPart(
        out + i,
        Op::Apply(LoadVecPart(a + i, n - i), LoadVecPart(b + i, n - i), parameter, inverse), n - i);
  }
}

}  // namespace
}  // namespace tilewright
