#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"
#include "core/formats/iq4_nl.h"

namespace tilewright {

/// Eight sub-blocks of 32 values, with codes as in BlockIq4Nl and a 6-bit scale each: the low four
/// bits are nibble s of scales_l, the high two are bits 2 s, 2 s + 1 of scales_h; value = d *
/// (scale - 32) * kNonLinearValues[code].
struct BlockIq4Xs {
  std::uint16_t d;  ///< f16 bits
  std::uint16_t scales_h;
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];

  static constexpr BlockFormat kFormat{.type = DataType::kIQ4_XS,
                                       .name = "iq4_xs",
                                       .gguf_type = 23,
                                       .gguf_file_type = 30,
                                       .elements = 256,
                                       .bytes = 136,
                                       .code_bits = 4,
                                       .sub_block = 32,
                                       .integer_bits = 6,
                                       .scale = Factor::kF16TimesInt,
                                       .has_table = true,
                                       .values = kNonLinearValues};
} __attribute__((packed));

static inline void Unpack(const BlockIq4Xs& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  for (int s = 0; s < 8; ++s) {
    const int low = block.scales_l[s / 2] >> (4 * (s % 2)) & 15;
    const int high = block.scales_h >> (2 * s) & 3;
    out.scales[s] = static_cast<std::int16_t>((low | high << 4) - 32);
    SplitNibbles(block.qs + 16 * s, out.codes + 32 * s, out.codes + 32 * s + 16);
  }
}

/// Searches for the scale of each 32 values with the least squared error.
static inline void Encode(const float* x, BlockIq4Xs& block) {
  block = {};
  float scales[8];
  float extreme = 0;
  for (int s = 0; s < 8; ++s) {
    scales[s] = BestNonLinearScale32(x + 32 * s);
    if (std::fabs(scales[s]) > std::fabs(extreme)) extreme = scales[s];
  }
  const float d = extreme / -32;
  block.d = F32ToF16(d);
  const float stored_d = F16ToF32(block.d);
  for (int s = 0; s < 8; ++s) {
    const int scale = RoundClamped(scales[s] * Inverse(d), -32, 31);
    block.scales_l[s / 2] |= static_cast<std::uint8_t>(((scale + 32) & 15) << (4 * (s % 2)));
    block.scales_h = static_cast<std::uint16_t>(block.scales_h | (scale + 32) >> 4 << (2 * s));
    const float inverse = Inverse(stored_d * static_cast<float>(scale));
    for (int j = 0; j < 16; ++j) {
      block.qs[16 * s + j] =
          static_cast<std::uint8_t>(NearestNonLinear(x[32 * s + j] * inverse) |
                                    NearestNonLinear(x[32 * s + 16 + j] * inverse) << 4);
    }
  }
}

}  // namespace tilewright
