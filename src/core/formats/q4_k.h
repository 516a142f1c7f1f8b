#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"
#include "core/formats/six_bit_factors.h"

namespace tilewright {

/// Eight sub-blocks of 32 values, each with a 6-bit scale and a 6-bit min (six_bit_factors.h).
/// Value 64 * j + l + 32 * h (j < 4, h < 2, l < 32) belongs to sub-block 2 * j + h and takes its
/// code from byte qs[32 * j + l], the low nibble for h = 0; value = d * scale * code - dmin * min.
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
                                       .integer_bits = 6,
                                       .scale = Factor::kF16TimesInt,
                                       .min = Factor::kF16TimesInt,
                                       .min_at = 2};
} __attribute__((packed));

static inline void Unpack(const BlockQ4_K& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  out.min = block.dmin ^ 0x8000u;  // the format subtracts
  UnpackSixBitFactors(block.scales, out);
  for (int i = 0; i < 128; i += 16) {
    std::uint8_t* codes = out.codes + 64 * (i / 32) + i % 32;
    SplitNibbles(block.qs + i, codes, codes + 32);
  }
}

static inline void Encode(const float* x, BlockQ4_K& block) {
  AffineFit<32> fit;
  FitAffine(x, 15, 63, fit);
  block.d = fit.d;
  block.dmin = fit.min;
  PackSixBitFactors(fit.scales, fit.mins, block.scales);
  for (int i = 0; i < 128; ++i) {
    const std::uint8_t* codes = fit.codes + 64 * (i / 32) + i % 32;
    block.qs[i] = static_cast<std::uint8_t>(codes[0] | codes[32] << 4);
  }
}

}  // namespace tilewright
