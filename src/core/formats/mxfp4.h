#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// Twice the values of the codes of mxfp4: a sign, two bits of exponent, one of mantissa. Code 8 is
/// 0 as code 0 is, not -0.
inline constexpr std::int8_t kTwiceE2M1Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                     0, -1, -2, -3, -4, -6, -8, -12};

/// Of the Open Compute Project's microscaling formats. Byte j holds the code of value j in its low
/// nibble and that of value j + 16 in its high nibble. GGUF has no NaN among the scales: 255 is a
/// power of two as all others.
struct BlockMxfp4 {
  std::uint8_t e;  ///< value = 2^(e - 128) * kTwiceE2M1Values[code]
  std::uint8_t qs[16];

  static constexpr BlockFormat kFormat{.type = DataType::kMXFP4,
                                       .name = "mxfp4",
                                       .gguf_type = 39,
                                       .gguf_file_type = 38,
                                       .elements = 32,
                                       .bytes = 17,
                                       .code_bits = 4,
                                       .sub_block = 32,
                                       .scale = Factor::kPowerOfTwo,
                                       .has_table = true,
                                       .values = kTwiceE2M1Values};
} __attribute__((packed));

static inline void Unpack(const BlockMxfp4& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.e;
  SplitNibbles(block.qs, out.codes, out.codes + 16);
}

/// The code whose value is nearest to x, which is in units of kTwiceE2M1Values; of two, the one
/// nearer to zero. What rounds to zero from below has code 0 too.
static inline int NearestTwiceE2M1(float x) {
  const float magnitude = std::fabs(x);
  int code = 0;
  while (code < 7 &&
         2 * magnitude > static_cast<float>(kTwiceE2M1Values[code] + kTwiceE2M1Values[code + 1]))
    ++code;
  return code > 0 && x < 0 ? code + 8 : code;
}

/// The power of two that brings the largest magnitude to 4 or more and below 8, where 6 is the
/// largest value: as the specification of the format says.
static inline void Encode(const float* x, BlockMxfp4& block) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::fmax(largest, std::fabs(x[j]));
  int exponent = 0;  // largest = m * 2^exponent, m from 0.5 to 1
  std::frexp(largest, &exponent);
  if (largest > 0) {
    const bool finite = largest < __builtin_inff();
    block.e = static_cast<std::uint8_t>(finite ? std::clamp(exponent - 3 + 127, 0, 254) : 254);
  } else {
    block.e = 0;
  }
  const double inverse = std::ldexp(1.0, 128 - block.e);
  for (int j = 0; j < 16; ++j) {
    const auto code = [&](float value) {
      return NearestTwiceE2M1(static_cast<float>(static_cast<double>(value) * inverse));
    };
    block.qs[j] = static_cast<std::uint8_t>(code(x[j]) | code(x[j + 16]) << 4);
  }
}

}  // namespace tilewright
