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

static inline void Encode(const float* x, BlockQ6_K& block) {
  SymmetricFit fit;
  FitSymmetric(x, 32, 128, fit);
  block = {};
  block.d = fit.d;
  for (int s = 0; s < 16; ++s) block.scales[s] = static_cast<std::int8_t>(fit.scales[s]);
  for (int i = 0; i < 256; ++i) {
    const int code = fit.codes[i], half = i / 128, t = i % 128 / 32, l = i % 32;
    block.ql[64 * half + 32 * (t & 1) + l] |=
        static_cast<std::uint8_t>((code & 15) << (t < 2 ? 0 : 4));
    block.qh[32 * half + l] |= static_cast<std::uint8_t>(code >> 4 << (2 * t));
  }
}

}  // namespace tilewright
