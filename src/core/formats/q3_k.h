#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// Two halves of 128 values. In half h, value l + 32 * s (l < 32, s < 4) takes its low two bits
/// from bits 2 s, 2 s + 1 of qs[32 * h + l], its third bit from bit 4 h + s of hmask[l]. Value i
/// has a 6-bit scale t = i / 16: the low four bits are a nibble of scales[t % 8], the high one for
/// t >= 8; the high two are bits 2 (t / 4) and above of scales[8 + t % 4]. value = d * (scale - 32)
/// * (code - 4).
struct BlockQ3_K {
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  std::uint16_t d;  ///< f16 bits

  static constexpr BlockFormat kFormat{.type = DataType::kQ3_K,
                                       .name = "q3_k",
                                       .gguf_type = 11,
                                       .gguf_file_type = 12,
                                       .elements = 256,
                                       .bytes = 110,
                                       .code_bits = 3,
                                       .zero = 4,
                                       .sub_block = 16,
                                       .integer_bits = 6,
                                       .scale = Factor::kF16TimesInt,
                                       .scale_at = 108};
} __attribute__((packed));

static inline void Unpack(const BlockQ3_K& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  for (int t = 0; t < 16; ++t) {
    const int low = block.scales[t % 8] >> (t < 8 ? 0 : 4) & 15;
    const int high = block.scales[8 + t % 4] >> (2 * (t / 4)) & 3;
    out.scales[t] = static_cast<std::int16_t>((low | high << 4) - 32);
  }
  for (int l = 0; l < 32; l += 16) {
    CodeVec third = LoadCodes(block.hmask + l);
    for (int half = 0; half < 2; ++half) {
      CodeVec low = LoadCodes(block.qs + 32 * half + l);
      for (int s = 0; s < 4; ++s, low >>= 2, third >>= 1)
        StoreCodes(out.codes + 128 * half + 32 * s + l, (low & 3) | (third & 1) << 2);
    }
  }
}

static inline void Encode(const float* x, BlockQ3_K& block) {
  SymmetricFit fit;
  FitSymmetric(x, 4, 32, fit);
  block = {};
  block.d = fit.d;
  for (int t = 0; t < 16; ++t) {
    const int scale = fit.scales[t] + 32;
    block.scales[t % 8] |= static_cast<std::uint8_t>((scale & 15) << (t < 8 ? 0 : 4));
    block.scales[8 + t % 4] |= static_cast<std::uint8_t>(scale >> 4 << (2 * (t / 4)));
  }
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, s = i % 128 / 32, l = i % 32;
    block.qs[32 * half + l] |= static_cast<std::uint8_t>((fit.codes[i] & 3) << (2 * s));
    block.hmask[l] |= static_cast<std::uint8_t>(fit.codes[i] >> 2 << (4 * half + s));
  }
}

}  // namespace tilewright
