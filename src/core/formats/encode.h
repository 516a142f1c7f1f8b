#pragma once

#include <cmath>

/// Arithmetic that the Encode functions of the formats share.

namespace tilewright {

/// Nearest integer in [low, high], ties to even; NaN gives `low`, so the conversion is always
/// defined.
static inline int RoundClamped(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  if (value >= static_cast<float>(high)) return high;
  return static_cast<int>(std::nearbyint(value));
}

/// The integer part of a value >= 0, at most `high`; NaN and negative values give 0. If the caller
/// adds 0.5 first, ties round up.
static inline int TruncatedTo(float value, int high) {
  if (!(value > 0)) return 0;
  return value >= static_cast<float>(high) ? high : static_cast<int>(value);
}

/// 1 / d, or 0 for d = 0: then every quotient is zero.
static inline float Inverse(float d) { return d != 0 ? 1.0f / d : 0.0f; }

}  // namespace tilewright
