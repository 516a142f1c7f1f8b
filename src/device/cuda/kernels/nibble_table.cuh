#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Formats whose 4-bit codes are places in a table of 16 signed bytes. The file compiles on the host
// too.

namespace tw {

/// Four bytes a word, the first in the lowest byte.
struct NibbleTable {
  u32 words[4];
};
/// kNonLinearValues of core/formats/iq4_nl.h.
inline constexpr NibbleTable kNonLinearTable = {
    {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}};

/// The bytes of four codes that lie beside each other in the low half of a word; `upper` has 4 in
/// every nibble whose code is 8 or more, and its own place beside.
TW_DEVICE u32 LookUpFour(const NibbleTable& table, u32 codes, u32 upper) {
  const u32 low = PermuteBytes(table.words[0], table.words[1], codes);
  const u32 high = PermuteBytes(table.words[2], table.words[3], codes);
  return PermuteBytes(low, high, upper);
}

/// The bytes of the low nibbles of a word's four bytes, and those of the high ones.
TW_DEVICE void LookUpNibbles(const NibbleTable& table, u32 word, u32& low, u32& high) {
  const u32 codes = word & 0x77777777u;
  const u32 upper = AndOr(word >> 1, 0x44444444u, 0x32103210u);
  const u32 first = LookUpFour(table, codes & 0xffffu, upper & 0xffffu);
  const u32 second = LookUpFour(table, codes >> 16, upper >> 16);
  low = PermuteBytes(first, second, 0x6420u);
  high = PermuteBytes(first, second, 0x7531u);
}

}  // namespace tw
