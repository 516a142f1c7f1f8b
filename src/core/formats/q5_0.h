#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// Byte j holds the low four bits of value j in its low nibble and those of value j + 16 in its
/// high nibble; bit i % 8 of qh[i / 8] is bit 4 of value i.
struct BlockQ5_0 {
  std::uint16_t d;  ///< f16 bits; value = d * (code - 16)
  std::uint8_t qh[4];
  std::uint8_t qs[16];

  static constexpr BlockFormat kFormat{.type = DataType::kQ5_0,
                                       .name = "q5_0",
                                       .gguf_type = 6,
                                       .gguf_file_type = 8,
                                       .elements = 32,
                                       .bytes = 22,
                                       .code_bits = 5,
                                       .zero = 16,
                                       .sub_block = 32};
} __attribute__((packed));

static inline void Unpack(const BlockQ5_0& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  SplitNibbles(block.qs, out.codes, out.codes + 16);
  AddFifthBits(block.qh, out.codes);
}

/// d = max / -16, where max is the value of largest magnitude with its sign: -16 has a code but +16
/// has not.
static inline void Encode(const float* x, BlockQ5_0& block) {
  float max = 0;
  for (int j = 0; j < 32; ++j) {
    if (std::fabs(x[j]) > std::fabs(max)) max = x[j];
  }
  const float d = max / -16;
  const float inverse = Inverse(d);
  block.d = F32ToF16(d);
  std::uint8_t codes[32];
  for (int j = 0; j < 32; ++j)
    codes[j] = static_cast<std::uint8_t>(TruncatedTo(x[j] * inverse + 16.5f, 31));
  PutFiveBits(codes, block.qh, block.qs);
}

}  // namespace tilewright
