#pragma once

#include "core/formats/encode.h"
#include "core/formats/format.h"

namespace tilewright {

/// The values of the codes of iq4_nl and iq4_xs: denser around zero, where weights are.
inline constexpr std::int8_t kNonLinearValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};

/// Byte j holds the code of value j in its low nibble and that of value j + 16 in its high nibble.
struct BlockIq4Nl {
  std::uint16_t d;  ///< f16 bits; value = d * kNonLinearValues[code]
  std::uint8_t qs[16];

  static constexpr BlockFormat kFormat{.type = DataType::kIQ4_NL,
                                       .name = "iq4_nl",
                                       .gguf_type = 20,
                                       .gguf_file_type = 25,
                                       .elements = 32,
                                       .bytes = 18,
                                       .code_bits = 4,
                                       .sub_block = 32,
                                       .has_table = true,
                                       .values = kNonLinearValues};
} __attribute__((packed));

static inline void Unpack(const BlockIq4Nl& __restrict block, UnpackedBlock& __restrict out) {
  out.scale = block.d;
  SplitNibbles(block.qs, out.codes, out.codes + 16);
}

/// The code whose value is nearest to x, the lower one of two.
static inline int NearestNonLinear(float x) {
  int code = 0;
  while (code < 15 &&
         2 * x > static_cast<float>(kNonLinearValues[code] + kNonLinearValues[code + 1]))
    ++code;
  return code;
}

/// BestScale for 32 values of kNonLinearValues: the extreme value gets one near -127.
static inline float BestNonLinearScale32(const float* x) {
  return BestScale<32, 7>(
      x, [](int step) { return static_cast<float>(2 * step - 127); },
      [](float value) { return kNonLinearValues[NearestNonLinear(value)]; });
}

/// Searches for the scale with the least squared error.
static inline void Encode(const float* x, BlockIq4Nl& block) {
  const float d = BestNonLinearScale32(x);
  block.d = F32ToF16(d);
  const float inverse = Inverse(d);
  for (int j = 0; j < 16; ++j) {
    block.qs[j] = static_cast<std::uint8_t>(NearestNonLinear(x[j] * inverse) |
                                            NearestNonLinear(x[j + 16] * inverse) << 4);
  }
}

}  // namespace tilewright
