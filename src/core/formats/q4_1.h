#pragma once

#include <algorithm>

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// Byte j holds value j in its low nibble and value j + 16 in its high nibble.
struct BlockQ4_1 {
  std::uint16_t d;  ///< f16 bits; value = d * code + m
  std::uint16_t m;
  std::uint8_t qs[16];

  static constexpr BlockFormat kFormat{.type = DataType::kQ4_1,
                                       .name = "q4_1",
                                       .gguf_type = 3,
                                       .gguf_file_type = 3,
                                       .elements = 32,
                                       .bytes = 20,
                                       .code_bits = 4,
                                       .sub_block = 32,
                                       .min = Factor::kF16,
                                       .min_at = 2};
} __attribute__((packed));

static inline void Unpack(const BlockQ4_1& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  out.min = block.m;
  SplitNibbles(block.qs, out.codes, out.codes + 16);
}

/// d = (max - min) / 15, m = min.
static inline void Encode(const float* x, BlockQ4_1& block) {
  float min = x[0], max = x[0];
  for (int j = 1; j < 32; ++j) {
    min = std::min(min, x[j]);
    max = std::max(max, x[j]);
  }
  const float d = (max - min) / 15;
  const float inverse = Inverse(d);
  block.d = F32ToF16(d);
  block.m = F32ToF16(min);
  for (int j = 0; j < 16; ++j) {
    const int low = TruncatedTo((x[j] - min) * inverse + 0.5f, 15);
    const int high = TruncatedTo((x[j + 16] - min) * inverse + 0.5f, 15);
    block.qs[j] = static_cast<std::uint8_t>(low | high << 4);
  }
}

}  // namespace tilewright
