#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/numeric.h"

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

/// Stores 32 codes of five bits as q5_0 and q5_1 do: fifth bits, then pairs of nibbles.
static inline void PutFiveBits(const std::uint8_t (&codes)[32], std::uint8_t (&high)[4],
                               std::uint8_t (&low)[16]) {
  for (int i = 0; i < 4; ++i) {
    int bits = 0;
    for (int j = 0; j < 8; ++j) bits |= codes[8 * i + j] >> 4 << j;
    high[i] = static_cast<std::uint8_t>(bits);
  }
  for (int j = 0; j < 16; ++j)
    low[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

/// Moves `step` and `min` towards the least squared error of min + step * code, by turns choosing
/// the nearest codes and fitting both to these. With few codes the ends of a range are far from the
/// best ones: for q2_k the error falls by a sixth.
static inline void RefineAffine(const float* x, int count, int most_code, float& step, float& min) {
  constexpr int kTurns = 4;
  for (int turn = 0; turn < kTurns; ++turn) {
    const float inverse = Inverse(step);
    float codes = 0, squares = 0, values = 0, products = 0;
    for (int i = 0; i < count; ++i) {
      const auto code = static_cast<float>(RoundClamped((x[i] + min) * inverse, 0, most_code));
      codes += code;
      squares += code * code;
      values += x[i];
      products += code * x[i];
    }
    const auto n = static_cast<float>(count);
    const float determinant = n * squares - codes * codes;
    if (!(determinant > 0)) return;
    float fitted = (n * products - codes * values) / determinant;
    float offset = (codes * fitted - values) / n;
    if (offset < 0) {  // subtracted: it cannot raise values
      offset = 0;
      fitted = products / squares;
    }
    if (!(fitted > 0) || !std::isfinite(fitted)) return;
    step = fitted;
    min = offset;
  }
}

/// A block of 256 values as the K formats with a minimum store it: value = scale * code - minimum,
/// both being an integer for each kSubBlock values times an f16.
template <int kSubBlock>
struct AffineFit {
  std::uint16_t d, min;  ///< f16 bits
  int scales[256 / kSubBlock], mins[256 / kSubBlock];
  std::uint8_t codes[256];
};

/// For each sub-block, minimum = min(0, smallest) and scale = (max - minimum) / most_code; with few
/// codes these are only where a search starts. Integers are at most `most_integer`.
template <int kSubBlock>
static inline void FitAffine(const float* x, int most_code, int most_integer,
                             AffineFit<kSubBlock>& fit) {
  constexpr int kCount = 256 / kSubBlock;
  float steps[kCount], mins[kCount];
  float largest_step = 0, largest_min = 0;
  for (int s = 0; s < kCount; ++s) {
    const float* values = x + kSubBlock * s;
    const auto [low, high] = std::minmax_element(values, values + kSubBlock);
    mins[s] = std::max(0.0f, -*low);  // subtracted: it cannot raise values
    steps[s] = (std::max(0.0f, *high) + mins[s]) / static_cast<float>(most_code);
    if (most_code <= 3) RefineAffine(values, kSubBlock, most_code, steps[s], mins[s]);
    largest_step = std::max(largest_step, steps[s]);
    largest_min = std::max(largest_min, mins[s]);
  }
  fit.d = F32ToF16(largest_step / static_cast<float>(most_integer));
  fit.min = F32ToF16(largest_min / static_cast<float>(most_integer));
  const float d = F16ToF32(fit.d), dmin = F16ToF32(fit.min);
  for (int s = 0; s < kCount; ++s) {
    fit.scales[s] = RoundClamped(steps[s] * Inverse(d), 0, most_integer);
    fit.mins[s] = RoundClamped(mins[s] * Inverse(dmin), 0, most_integer);
    const float inverse = Inverse(d * static_cast<float>(fit.scales[s]));
    const float offset = dmin * static_cast<float>(fit.mins[s]);
    for (int i = kSubBlock * s; i < kSubBlock * (s + 1); ++i)
      fit.codes[i] =
          static_cast<std::uint8_t>(RoundClamped((x[i] + offset) * inverse, 0, most_code));
  }
}

/// A block of 256 values as the K formats without a minimum store it: value = d * scale * (code -
/// levels), a signed scale for each 16 values.
struct SymmetricFit {
  std::uint16_t d;  ///< f16 bits
  int scales[16];
  std::uint8_t codes[256];
};

/// The scale for kCount values: tries those that bring the extreme value to numerator(step), for
/// steps from -kSteps to kSteps, and returns the least-squares scale for the best codes, whose
/// values nearest(x) gives. Values are weighted by their squares, since the error of a large weight
/// costs more than that of a small one.
template <int kCount, int kSteps, class Numerator, class Nearest>
static inline float BestScale(const float* x, const Numerator& numerator, const Nearest& nearest) {
  float extreme = 0;
  for (int j = 0; j < kCount; ++j) {
    if (std::fabs(x[j]) > std::fabs(extreme)) extreme = x[j];
  }
  if (extreme == 0) return 0;
  float best_scale = extreme / numerator(0), best_gain = 0;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const float inverse = numerator(step) / extreme;
    float xq = 0, qq = 0;
    for (int j = 0; j < kCount; ++j) {
      const auto q = static_cast<float>(nearest(x[j] * inverse));
      const float weight = x[j] * x[j];
      xq += weight * x[j] * q;
      qq += weight * q * q;
    }
    // With scale xq / qq the weighted squared error is (sum of w x^2) - xq^2 / qq: the largest gain
    // has the least error.
    if (qq > 0 && xq * xq > best_gain * qq) {
      best_gain = xq * xq / qq;
      best_scale = xq / qq;
    }
  }
  return best_scale;
}

/// Searches for the scale of each 16 values with the least squared error: codes are in
/// [-levels, levels - 1], integers in [-most_integer, most_integer - 1].
static inline void FitSymmetric(const float* x, int levels, int most_integer, SymmetricFit& fit) {
  float scales[16];
  float extreme = 0;
  for (int s = 0; s < 16; ++s) {
    scales[s] = BestScale<16, 9>(
        x + 16 * s,
        [&](int step) { return -(static_cast<float>(levels) + 0.1f * static_cast<float>(step)); },
        [&](float value) { return RoundClamped(value, -levels, levels - 1); });
    if (std::fabs(scales[s]) > std::fabs(extreme)) extreme = scales[s];
  }
  const float d = extreme / static_cast<float>(-most_integer);
  fit.d = F32ToF16(d);
  const float stored_d = F16ToF32(fit.d);
  const float inverse = Inverse(d);
  for (int s = 0; s < 16; ++s) {
    fit.scales[s] = RoundClamped(scales[s] * inverse, -most_integer, most_integer - 1);
    const float step = stored_d * static_cast<float>(fit.scales[s]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      fit.codes[i] = static_cast<std::uint8_t>(
          RoundClamped(x[i] * Inverse(step), -levels, levels - 1) + levels);
    }
  }
}

}  // namespace tilewright
