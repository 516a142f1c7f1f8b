#pragma once

#include <algorithm>

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// Eight sub-blocks of 32 values, each with a 6-bit scale and a 6-bit min. Sub-block s < 4: scale
/// in the low six bits of scales[s], min in those of scales[s + 4]. s >= 4: the low four bits of
/// the scale are the low nibble of scales[s + 4] and those of the min its high nibble; their high
/// two bits are the high two bits of scales[s - 4] (scale) and scales[s] (min). Value 64 * j + l +
/// 32 * h (j < 4, h < 2, l < 32) belongs to sub-block 2 * j + h and takes its code from byte qs[32
/// * j + l], the low nibble for h = 0; value = d * scale * code - dmin * min.
struct BlockQ4_K {
  std::uint16_t d;  ///< f16 bits
  std::uint16_t dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];

  static constexpr BlockFormat kFormat{.type = DataType::kQ4_K,
                                       .name = "q4_k",
                                       .gguf_type = 12,
                                       .gguf_file_type = 15,
                                       .elements = 256,
                                       .bytes = 144,
                                       .code_bits = 4,
                                       .sub_block = 32,
                                       .scale = Factor::kF16TimesInt,
                                       .min = Factor::kF16TimesInt,
                                       .min_at = 2};
} __attribute__((packed));

static inline void Unpack(const BlockQ4_K& __restrict block, UnpackedBlock& __restrict out) {
  const std::uint8_t* b = block.scales;
  out.scale = block.d;
  out.min = block.dmin ^ 0x8000u;  // the format subtracts
  for (int s = 0; s < 4; ++s) {
    out.scales[s] = b[s] & 63;
    out.mins[s] = b[s + 4] & 63;
    out.scales[s + 4] = static_cast<std::int16_t>((b[s + 8] & 15) | b[s] >> 6 << 4);
    out.mins[s + 4] = static_cast<std::int16_t>(b[s + 8] >> 4 | b[s + 4] >> 6 << 4);
  }
  for (int i = 0; i < 128; i += 16) {
    std::uint8_t* codes = out.codes + 64 * (i / 32) + i % 32;
    SplitNibbles(block.qs + i, codes, codes + 32);
  }
}

/// For each 32 values, min = min(0, smallest) and scale = (max - min) / 15, without a search.
static inline void Encode(const float* x, BlockQ4_K& block) {
  block = {};
  float steps[8], mins[8];
  float largest_step = 0, largest_min = 0;
  for (int s = 0; s < 8; ++s) {
    const auto [low, high] = std::minmax_element(x + 32 * s, x + 32 * s + 32);
    mins[s] = std::max(0.0f, -*low);  // subtracted: it cannot raise values
    steps[s] = (std::max(0.0f, *high) + mins[s]) / 15;
    largest_step = std::max(largest_step, steps[s]);
    largest_min = std::max(largest_min, mins[s]);
  }
  block.d = F32ToF16(largest_step / 63);
  block.dmin = F32ToF16(largest_min / 63);
  const float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  for (int s = 0; s < 8; ++s) {
    const int scale = RoundClamped(steps[s] * Inverse(d), 0, 63);
    const int min = RoundClamped(mins[s] * Inverse(dmin), 0, 63);
    if (s < 4) {
      block.scales[s] |= static_cast<std::uint8_t>(scale);
      block.scales[s + 4] |= static_cast<std::uint8_t>(min);
    } else {
      block.scales[s + 4] |= static_cast<std::uint8_t>((scale & 15) | (min & 15) << 4);
      block.scales[s - 4] |= static_cast<std::uint8_t>(scale >> 4 << 6);
      block.scales[s] |= static_cast<std::uint8_t>(min >> 4 << 6);
    }
    const float inverse = Inverse(d * static_cast<float>(scale));
    const float offset = dmin * static_cast<float>(min);
    for (int l = 0; l < 32; ++l) {
      const int code = RoundClamped((x[32 * s + l] + offset) * inverse, 0, 15);
      block.qs[32 * (s / 2) + l] |= static_cast<std::uint8_t>(code << (4 * (s % 2)));
    }
  }
}

}  // namespace tilewright
