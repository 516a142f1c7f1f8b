#pragma once

#include <algorithm>

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// Codes as in BlockQ5_0.
struct BlockQ5_1 {
  std::uint16_t d;  ///< f16 bits; value = d * code + m
  std::uint16_t m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];

  static constexpr BlockFormat kFormat{.type = DataType::kQ5_1,
                                       .name = "q5_1",
                                       .gguf_type = 7,
                                       .gguf_file_type = 9,
                                       .elements = 32,
                                       .bytes = 24,
                                       .code_bits = 5,
                                       .sub_block = 32,
                                       .min = Factor::kF16,
                                       .min_at = 2};
} __attribute__((packed));

static inline void Unpack(const BlockQ5_1& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  out.min = block.m;
  SplitNibbles(block.qs, out.codes, out.codes + 16);
  AddFifthBits(block.qh, out.codes);
}

/// d = (max - min) / 31, m = min.
static inline void Encode(const float* x, BlockQ5_1& block) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float min = *low;
  const float d = (*high - min) / 31;
  const float inverse = Inverse(d);
  block.d = F32ToF16(d);
  block.m = F32ToF16(min);
  std::uint8_t codes[32];
  for (int j = 0; j < 32; ++j)
    codes[j] = static_cast<std::uint8_t>(TruncatedTo((x[j] - min) * inverse + 0.5f, 31));
  PutFiveBits(codes, block.qh, block.qs);
}

}  // namespace tilewright
