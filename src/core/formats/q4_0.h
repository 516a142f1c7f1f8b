#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// Byte j holds value j in its low nibble and value j + 16 in its high nibble.
struct BlockQ4_0 {
  std::uint16_t d;  ///< f16 bits; value = d * (code - 8)
  std::uint8_t qs[16];

  static constexpr BlockFormat kFormat{.type = DataType::kQ4_0,
                                       .name = "q4_0",
                                       .gguf_type = 2,
                                       .gguf_file_type = 2,
                                       .elements = 32,
                                       .bytes = 18,
                                       .code_bits = 4,
                                       .zero = 8,
                                       .sub_block = 32};
} __attribute__((packed));

static inline void Unpack(const BlockQ4_0& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  SplitNibbles(block.qs, out.codes, out.codes + 16);
}

/// d = max / -8, where max is the value of largest magnitude with its sign: -8 has a code but +8
/// has not, so the extreme value gets the code of -8.
static inline void Encode(const float* x, BlockQ4_0& block) {
  float max = 0;
  for (int j = 0; j < 32; ++j) {
    if (std::fabs(x[j]) > std::fabs(max)) max = x[j];
  }
  const float d = max / -8;
  const float inverse = Inverse(d);
  block.d = F32ToF16(d);
  for (int j = 0; j < 16; ++j) {
    const int low = TruncatedTo(x[j] * inverse + 8.5f, 15);
    const int high = TruncatedTo(x[j + 16] * inverse + 8.5f, 15);
    block.qs[j] = static_cast<std::uint8_t>(low | high << 4);
  }
}

}  // namespace tilewright
