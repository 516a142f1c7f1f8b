#pragma once

#include "core/formats/format.h"

/// The eight scales and eight minima of six bits that q4_k and q5_k keep in twelve bytes. Sub-block
/// s < 4: scale in the low six bits of byte s, minimum in those of byte s + 4. s >= 4: the low four
/// bits of the scale are the low nibble of byte s + 4 and those of the minimum its high nibble;
/// their high two bits are the high two bits of bytes s - 4 (scale) and s (minimum).

namespace tilewright {

static inline void UnpackSixBitFactors(const std::uint8_t* b, UnpackedBlock& __restrict out) {
  for (int s = 0; s < 4; ++s) {
    out.scales[s] = b[s] & 63;
    out.mins[s] = b[s + 4] & 63;
    out.scales[s + 4] = static_cast<std::int16_t>((b[s + 8] & 15) | b[s] >> 6 << 4);
    out.mins[s + 4] = static_cast<std::int16_t>(b[s + 8] >> 4 | b[s + 4] >> 6 << 4);
  }
}

static inline void PackSixBitFactors(const int (&scales)[8], const int (&mins)[8],
                                     std::uint8_t* b) {
  for (int s = 0; s < 4; ++s) {
    b[s] = static_cast<std::uint8_t>(scales[s] | scales[s + 4] >> 4 << 6);
    b[s + 4] = static_cast<std::uint8_t>(mins[s] | mins[s + 4] >> 4 << 6);
    b[s + 8] = static_cast<std::uint8_t>((scales[s + 4] & 15) | (mins[s + 4] & 15) << 4);
  }
}

}  // namespace tilewright
