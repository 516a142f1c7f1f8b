#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// Two halves of 128 values. In half h, value l + 32 * s (l < 32, s < 4) takes its code from bits
/// 2 s, 2 s + 1 of qs[32 * h + l]. Value i has the scale in the low nibble of scales[i / 16] and
/// the minimum in the high nibble; value = d * scale * code - dmin * min.
struct BlockQ2_K {
  std::uint8_t scales[16];
  std::uint8_t qs[64];
  std::uint16_t d;  ///< f16 bits
  std::uint16_t dmin;

  static constexpr BlockFormat kFormat{.type = DataType::kQ2_K,
                                       .name = "q2_k",
                                       .gguf_type = 10,
                                       .gguf_file_type = 10,
                                       .elements = 256,
                                       .bytes = 84,
                                       .code_bits = 2,
                                       .sub_block = 16,
                                       .integer_bits = 4,
                                       .scale = Factor::kF16TimesInt,
                                       .min = Factor::kF16TimesInt,
                                       .scale_at = 80,
                                       .min_at = 82};
} __attribute__((packed));

static inline void Unpack(const BlockQ2_K& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  out.min = block.dmin ^ 0x8000u;  // the format subtracts
  for (int s = 0; s < 16; ++s) {
    out.scales[s] = block.scales[s] & 15;
    out.mins[s] = block.scales[s] >> 4;
  }
  for (int i = 0; i < 64; i += 16) {
    CodeVec four = LoadCodes(block.qs + i);
    std::uint8_t* codes = out.codes + 128 * (i / 32) + i % 32;
    for (int s = 0; s < 4; ++s, four >>= 2) StoreCodes(codes + 32 * s, four & 3);
  }
}

static inline void Encode(const float* x, BlockQ2_K& block) {
  AffineFit<16> fit;
  FitAffine(x, 3, 15, fit);
  block.d = fit.d;
  block.dmin = fit.min;
  for (int s = 0; s < 16; ++s)
    block.scales[s] = static_cast<std::uint8_t>(fit.scales[s] | fit.mins[s] << 4);
  for (int i = 0; i < 64; ++i) {
    const std::uint8_t* codes = fit.codes + 128 * (i / 32) + i % 32;
    block.qs[i] =
        static_cast<std::uint8_t>(codes[0] | codes[32] << 2 | codes[64] << 4 | codes[96] << 6);
  }
}

}  // namespace tilewright
