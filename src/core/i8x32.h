#pragma once

#include <cstdint>

#include "core/numeric.h"

/// DataType::kI8X32: activations rounded to int8, with a scale for each 32 of a row, as the int8
/// products round them. Everything that rounds uses this one definition, so a row gets the same
/// codes and scales everywhere. Functions are `static inline`, so that each kernel file, compiled
/// for an instruction set, keeps its own copy.

namespace tilewright {

struct BlockI8x32 {
  static constexpr int kElements = 32;

  float d;  ///< value = d * q; NaN where a value of the block is not finite
  std::int8_t q[kElements];
};
static_assert(sizeof(BlockI8x32) == 36);

/// Scale of a block from the bits of its largest magnitude (compared as integers, so that NaN beats
/// infinity beats all): d = amax / 127 and 127 / amax. Not finite: d = NaN, which reaches every
/// output of the row. Below 2^-100 the block counts as zero, because 127 / amax would overflow.
/// Where `inverse` is 0 all codes are 0.
static inline void ScaleOfI8x32(std::uint32_t magnitude, float& d, float& inverse) {
  const float amax = F32FromBits(magnitude);
  if (magnitude >= 0x7f800000u) {
    d = __builtin_nanf("");
    inverse = 0.0f;
  } else if (amax < 0x1p-100f) {
    d = 0.0f;
    inverse = 0.0f;
  } else {
    d = amax / 127.0f;
    inverse = 127.0f / amax;
  }
}

/// Rounds 32 values; codes to nearest, ties to even.
static inline void Encode(const float* x, BlockI8x32& block) {
  std::uint32_t magnitude = 0;
  for (int i = 0; i < BlockI8x32::kElements; ++i) {
    const std::uint32_t bits = BitsOfF32(x[i]) & 0x7fffffffu;
    if (bits > magnitude) magnitude = bits;
  }
  float inverse;
  ScaleOfI8x32(magnitude, block.d, inverse);
  for (int i = 0; i < BlockI8x32::kElements; ++i) {
    // Adding 1.5 * 2^23 leaves no fraction bits, so the addition rounds to nearest even.
    const float value = inverse != 0.0f ? x[i] * inverse : 0.0f;
    block.q[i] = static_cast<std::int8_t>((value + 0x1.8p23f) - 0x1.8p23f);
  }
}

}  // namespace tilewright
