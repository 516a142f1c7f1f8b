#pragma once

#include <algorithm>

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

struct BlockQ8_0 {
  std::uint16_t d;  ///< f16 bits; value = d * q
  std::int8_t qs[32];

  static constexpr BlockFormat kFormat{.type = DataType::kQ8_0,
                                       .name = "q8_0",
                                       .gguf_type = 8,
                                       .gguf_file_type = 7,
                                       .elements = 32,
                                       .bytes = 34,
                                       .code_bits = 8,
                                       .zero = 128,
                                       .sub_block = 32};
} __attribute__((packed));

static inline void Unpack(const BlockQ8_0& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  for (int j = 0; j < 32; ++j) out.codes[j] = static_cast<std::uint8_t>(block.qs[j] + 128);
}

/// d = max|x| / 127; codes round to nearest even.
static inline void Encode(const float* x, BlockQ8_0& block) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(x[j]));
  const float d = largest / 127;
  block.d = F32ToF16(d);
  // A scale that underflows to 0 in f16 decodes to zeros whatever the codes; its inverse may not be
  // finite.
  const float inverse = block.d != 0 ? 1.0f / d : 0.0f;
  for (int j = 0; j < 32; ++j)
    block.qs[j] = static_cast<std::int8_t>(RoundClamped(x[j] * inverse, -127, 127));
}

}  // namespace tilewright
