#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// Two halves of 128 values. In half h, value l + 32 * s (l < 32, s < 4) takes its low four bits
/// from byte ql[64 * h + 32 * (s & 1) + l] (low nibble for s < 2, high nibble else), its high two
/// bits from bits 2 s, 2 s + 1 of qh[32 * h + l]. Value i has scale scales[i / 16]; value = d *
/// scale * (code - 32).
struct BlockQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;  ///< f16 bits

  static constexpr BlockFormat kFormat{.type = DataType::kQ6_K,
                                       .name = "q6_k",
                                       .gguf_type = 14,
                                       .gguf_file_type = 18,
                                       .elements = 256,
                                       .bytes = 210,
                                       .code_bits = 6,
                                       .zero = 32,
                                       .sub_block = 16,
                                       .scale = Factor::kF16TimesInt,
                                       .scale_at = 208};
} __attribute__((packed));

static inline void Unpack(const BlockQ6_K& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  for (int s = 0; s < 16; ++s) out.scales[s] = block.scales[s];
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* low = block.ql + 64 * half;
    const std::uint8_t* high = block.qh + 32 * half;
    std::uint8_t* codes = out.codes + 128 * half;
    for (int l = 0; l < 32; ++l) {
      codes[l] = static_cast<std::uint8_t>((low[l] & 15) | (high[l] & 3) << 4);
      codes[l + 32] = static_cast<std::uint8_t>((low[l + 32] & 15) | (high[l] >> 2 & 3) << 4);
      codes[l + 64] = static_cast<std::uint8_t>(low[l] >> 4 | (high[l] >> 4 & 3) << 4);
      codes[l + 96] = static_cast<std::uint8_t>(low[l + 32] >> 4 | (high[l] >> 6) << 4);
    }
  }
}

/// The scale for 16 values quantised to [-32, 31]: tries 19 scales around extreme / -32 and returns
/// the least-squares scale for the best codes. Values are weighted by their squares, since the
/// error
/// of a large weight costs more than that of a small one.
static inline float BestScale16(const float* x) {
  float extreme = 0;
  for (int j = 0; j < 16; ++j) {
    if (std::fabs(x[j]) > std::fabs(extreme)) extreme = x[j];
  }
  if (extreme == 0) return 0;
  float best_scale = extreme / -32, best_gain = 0;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = -(32.0f + 0.1f * static_cast<float>(step)) / extreme;
    float xq = 0, qq = 0;
    for (int j = 0; j < 16; ++j) {
      const float q = static_cast<float>(RoundClamped(x[j] * inverse, -32, 31));
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

/// Searches for the scale of each 16 values with the least squared error.
static inline void Encode(const float* x, BlockQ6_K& block) {
  block = {};
  float scales[16];
  float extreme = 0;
  for (int s = 0; s < 16; ++s) {
    scales[s] = BestScale16(x + 16 * s);
    if (std::fabs(scales[s]) > std::fabs(extreme)) extreme = scales[s];
  }
  const float d = extreme / -128;
  block.d = F32ToF16(d);
  const float stored_d = F16ToF32(block.d);
  const float inverse = Inverse(d);
  for (int s = 0; s < 16; ++s) {
    block.scales[s] = static_cast<std::int8_t>(RoundClamped(scales[s] * inverse, -128, 127));
    const float step = stored_d * static_cast<float>(block.scales[s]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      const int code = RoundClamped(x[i] * Inverse(step), -32, 31) + 32;
      const int half = i / 128, t = i % 128 / 32, l = i % 32;
      block.ql[64 * half + 32 * (t & 1) + l] |=
          static_cast<std::uint8_t>((code & 15) << (t < 2 ? 0 : 4));
      block.qh[32 * half + l] |= static_cast<std::uint8_t>(code >> 4 << (2 * t));
    }
  }
}

}  // namespace tilewright
