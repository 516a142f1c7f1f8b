#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"
#include "core/formats/six_bit_factors.h"

namespace tilewright {

/// As BlockQ4_K, with a fifth bit: that of the value l of sub-block s (l < 32) is bit s of qh[l].
struct BlockQ5_K {
  std::uint16_t d;  ///< f16 bits
  std::uint16_t dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];

  static constexpr BlockFormat kFormat{.type = DataType::kQ5_K,
                                       .name = "q5_k",
                                       .gguf_type = 13,
                                       .gguf_file_type = 17,
                                       .elements = 256,
                                       .bytes = 176,
                                       .code_bits = 5,
                                       .sub_block = 32,
                                       .integer_bits = 6,
                                       .scale = Factor::kF16TimesInt,
                                       .min = Factor::kF16TimesInt,
                                       .min_at = 2};
} __attribute__((packed));

static inline void Unpack(const BlockQ5_K& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  out.min = block.dmin ^ 0x8000u;  // the format subtracts
  UnpackSixBitFactors(block.scales, out);
  for (int l = 0; l < 32; l += 16) {
    CodeVec high = LoadCodes(block.qh + l);
    for (int j = 0; j < 4; ++j, high >>= 2) {
      const CodeVec low = LoadCodes(block.qs + 32 * j + l);
      std::uint8_t* codes = out.codes + 64 * j + l;
      StoreCodes(codes, (low & 15) | (high & 1) << 4);
      StoreCodes(codes + 32, low >> 4 | (high & 2) << 3);
    }
  }
}

static inline void Encode(const float* x, BlockQ5_K& block) {
  AffineFit<32> fit;
  FitAffine(x, 31, 63, fit);
  block.d = fit.d;
  block.dmin = fit.min;
  PackSixBitFactors(fit.scales, fit.mins, block.scales);
  for (int i = 0; i < 128; ++i) {
    const std::uint8_t* codes = fit.codes + 64 * (i / 32) + i % 32;
    block.qs[i] = static_cast<std::uint8_t>((codes[0] & 15) | (codes[32] & 15) << 4);
  }
  for (int l = 0; l < 32; ++l) {
    int bits = 0;
    for (int s = 0; s < 8; ++s) bits |= fit.codes[32 * s + l] >> 4 << s;
    block.qh[l] = static_cast<std::uint8_t>(bits);
  }
}

}  // namespace tilewright
