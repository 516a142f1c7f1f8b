#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// The one description of a GGUF block format (core/formats/) that every kernel can be made of: its
// codes as signed bytes and what they are scaled with. BlockCodes<type> has
//   kBlock, kBytes     values and bytes of a block
//   kZero              what a byte is more than its code stands for
//   kScales            scales of a sub-block of 32 values: 1, or 2 with one for each 16 values
//   kHasOffset         whether a sub-block adds an offset
//   Pair(b, at, s, t, words)   words[h] are values 16 h + 4 t .. + 3 of sub-block s, as signed bytes,
//                              of the block at byte `at` of `b`
//   ScaleOf(b, at, s, h)       of values 16 h .. of sub-block s (with one scale for any h)
// so that a value is scale * (byte - kZero) + offset: products are exact, and adding an offset rounds once.
// Bytes are read by `b`: Word(at), Half(at) and Byte(at) of four bytes, two, and one at byte `at`.
// Formats that had kernels of their own before (q4_0, q4_1, q8_0, q4_k, q6_k) are not here.
//
// The file compiles on the host too, where tests hold it to DecodeRow.

namespace tw {

/// value = scale * code + offset.
struct CodeScale {
  float scale, offset;
};

/// 16-bit unit at an even address.
TW_DEVICE u32 Load16Bits(const u8* p) { return *reinterpret_cast<const u16*>(p); }

/// Bytes at an even address, of which none beside those asked for is read.
struct EvenBytes {
  const u8* data;
  TW_DEVICE u32 Byte(int at) const { return data[at]; }
  TW_DEVICE u32 Half(int at) const { return Load16Bits(data + at); }
  TW_DEVICE u32 Word(int at) const { return Half(at) | Half(at + 2) << 16; }
};

/// Bytes at any address, one at a time.
struct SingleBytes {
  const u8* data;
  TW_DEVICE u32 Byte(int at) const { return data[at]; }
  TW_DEVICE u32 Half(int at) const { return Byte(at) | Byte(at + 1) << 8; }
  TW_DEVICE u32 Word(int at) const { return Half(at) | Half(at + 2) << 16; }
};

/// By whether blocks are an odd number of bytes.
template <bool kOdd>
struct BytesOfBlock {
  using T = EvenBytes;
};
template <>
struct BytesOfBlock<true> {
  using T = SingleBytes;
};

/// Byte i of `word` as 2^23 + byte.
TW_DEVICE float BytePlusMagic(u32 word, u32 i) {
  return FloatOf(PermuteBytes(word, 0x4b000000u, 0x7440u + i));
}
/// Integers of eight bits, without a conversion.
TW_DEVICE float FloatOfByte(u32 byte) { return BytePlusMagic(byte, 0) - 8388608.0f; }

/// Bytes of at most 127 less kZero each, as signed bytes.
template <int kZero>
TW_DEVICE u32 LessZero(u32 codes) {
  if constexpr (kZero == 0) return codes;
  return (codes + (128u - static_cast<u32>(kZero)) * 0x01010101u) ^ 0x80808080u;
}

/// Bit kBit of four bytes from the four lowest bits of `bits`: a multiplication puts copies of them
/// seven bits apart, which do not overlap.
template <int kBit>
TW_DEVICE u32 SpreadBits(u32 bits) {
  return (bits & 15u) * (0x00204081u << kBit) & (0x01010101u << kBit);
}

/// Nibbles of four bytes, the low ones to words[0], the high ones to words[1].
TW_DEVICE void SplitNibbles(u32 bytes, u32 (&words)[2]) {
  words[0] = bytes & 0x0f0f0f0fu;
  words[1] = bytes >> 4 & 0x0f0f0f0fu;
}

/// Nibbles of four bytes as the signed bytes of a table of sixteen, four to each word Table::kA .. kD.
/// A permutation picks four bytes of eight by three bits each: one of the lower half of the table,
/// one of the upper half, and one of each two of those by the fourth bit.
template <class Table>
TW_DEVICE void LookUpNibbles(u32 bytes, u32 (&words)[2]) {
  const u32 picks = bytes & 0x77777777u;
  const u32 halves = AndOr(bytes >> 1, 0x44444444u, 0x32103210u);
  u32 pairs[2];  // of two bytes: low nibble, high nibble, low, high
  TW_UNROLL
  for (int i = 0; i < 2; ++i) {
    const u32 low = PermuteSignedBytes(Table::kA, Table::kB, picks >> (16 * i));
    const u32 high = PermuteSignedBytes(Table::kC, Table::kD, picks >> (16 * i));
    pairs[i] = PermuteSignedBytes(low, high, halves >> (16 * i));
  }
  words[0] = PermuteBytes(pairs[0], pairs[1], 0x6420u);
  words[1] = PermuteBytes(pairs[0], pairs[1], 0x7531u);
}

/// The scale and the minimum of sub-block s of core/formats/six_bit_factors.h.
struct SixBits {
  u32 scale, min;
};
template <class Bytes>
TW_DEVICE SixBits SixBitFactors(const Bytes& b, int at, int s) {
  if (s < 4) return {b.Byte(at + s) & 63u, b.Byte(at + s + 4) & 63u};
  const u32 low = b.Byte(at + s + 4);
  return {(low & 15u) | b.Byte(at + s - 4) >> 6 << 4, low >> 4 | b.Byte(at + s) >> 6 << 4};
}

/// Defined for the formats below only.
template <Type kType>
struct BlockCodes;

/// d; four bytes with bit 4 of values 0 .. 31; 16 bytes, the low nibbles values 0 .. 15, the high
/// ones 16 .. 31.
template <>
struct BlockCodes<Type::kQ5_0> {
  static constexpr int kBlock = 32, kBytes = 22, kScales = 1, kZero = 16;
  static constexpr bool kHasOffset = false;
  template <class Bytes>
  TW_DEVICE static void Pair(const Bytes& b, int at, int, int t, u32 (&words)[2]) {
    const u32 fifth = b.Word(at + 2) >> (4 * t);
    SplitNibbles(b.Word(at + 6 + 4 * t), words);
    words[0] |= SpreadBits<4>(fifth);
    words[1] |= SpreadBits<4>(fifth >> 16);
  }
  template <class Bytes>
  TW_DEVICE static CodeScale ScaleOf(const Bytes& b, int at, int, int) {
    return {LowF16ToF32(b.Half(at)), 0.0f};
  }
};

/// d, m; the same.
template <>
struct BlockCodes<Type::kQ5_1> {
  static constexpr int kBlock = 32, kBytes = 24, kScales = 1, kZero = 0;
  static constexpr bool kHasOffset = true;
  template <class Bytes>
  TW_DEVICE static void Pair(const Bytes& b, int at, int, int t, u32 (&words)[2]) {
    const u32 fifth = b.Word(at + 4) >> (4 * t);
    SplitNibbles(b.Word(at + 8 + 4 * t), words);
    words[0] |= SpreadBits<4>(fifth);
    words[1] |= SpreadBits<4>(fifth >> 16);
  }
  template <class Bytes>
  TW_DEVICE static CodeScale ScaleOf(const Bytes& b, int at, int, int) {
    const u32 factors = b.Word(at);
    return {LowF16ToF32(factors), HighF16ToF32(factors)};
  }
};

/// d, dmin; 12 bytes of 6-bit scales and minima; 32 bytes with bit 4 of the eight sub-blocks; four
/// times 32 bytes whose low nibbles are sub-block 2 j and whose high nibbles are sub-block 2 j + 1.
template <>
struct BlockCodes<Type::kQ5_K> {
  static constexpr int kBlock = 256, kBytes = 176, kScales = 1, kZero = 0;
  static constexpr bool kHasOffset = true;
  template <class Bytes>
  TW_DEVICE static void Pair(const Bytes& b, int at, int s, int t, u32 (&words)[2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 low = b.Word(at + 48 + 32 * (s / 2) + 16 * h + 4 * t) >> (4 * (s % 2));
      const u32 fifth = b.Word(at + 16 + 16 * h + 4 * t) >> s;
      words[h] = AndOr(fifth << 4, 0x10101010u, low & 0x0f0f0f0fu);
    }
  }
  template <class Bytes>
  TW_DEVICE static CodeScale ScaleOf(const Bytes& b, int at, int s, int) {
    const u32 factors = b.Word(at);
    const SixBits own = SixBitFactors(b, at + 4, s);
    return {LowF16ToF32(factors) * FloatOfByte(own.scale),
            -HighF16ToF32(factors) * FloatOfByte(own.min)};
  }
};

/// 16 bytes, a scale in the low and a minimum in the high nibble for each 16 values; two times 32
/// bytes with two bits for each of four sub-blocks; d, dmin.
template <>
struct BlockCodes<Type::kQ2_K> {
  static constexpr int kBlock = 256, kBytes = 84, kScales = 2, kZero = 0;
  static constexpr bool kHasOffset = true;
  template <class Bytes>
  TW_DEVICE static void Pair(const Bytes& b, int at, int s, int t, u32 (&words)[2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h)
      words[h] = b.Word(at + 16 + 32 * (s / 4) + 16 * h + 4 * t) >> (2 * (s % 4)) & 0x03030303u;
  }
  template <class Bytes>
  TW_DEVICE static CodeScale ScaleOf(const Bytes& b, int at, int s, int h) {
    const u32 own = b.Byte(at + 2 * s + h), factors = b.Word(at + 80);
    return {LowF16ToF32(factors) * FloatOfByte(own & 15u),
            -HighF16ToF32(factors) * FloatOfByte(own >> 4)};
  }
};

/// 32 bytes with bit 2 of the eight sub-blocks; two times 32 bytes with two bits for each of four
/// sub-blocks; 12 bytes of 6-bit scales less 32 (core/formats/q3_k.h); d.
template <>
struct BlockCodes<Type::kQ3_K> {
  static constexpr int kBlock = 256, kBytes = 110, kScales = 2, kZero = 4;
  static constexpr bool kHasOffset = false;
  template <class Bytes>
  TW_DEVICE static void Pair(const Bytes& b, int at, int s, int t, u32 (&words)[2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 low = b.Word(at + 32 + 32 * (s / 4) + 16 * h + 4 * t) >> (2 * (s % 4));
      const u32 third = b.Word(at + 16 * h + 4 * t) >> s;
      words[h] = AndOr(third << 2, 0x04040404u, low & 0x03030303u);
    }
  }
  template <class Bytes>
  TW_DEVICE static CodeScale ScaleOf(const Bytes& b, int at, int s, int h) {
    const int t = 2 * s + h;
    const u32 low = b.Byte(at + 96 + t % 8) >> (t < 8 ? 0 : 4) & 15u;
    const u32 high = b.Byte(at + 104 + t % 4) >> (2 * (t / 4)) & 3u;
    return {LowF16ToF32(b.Half(at + 108)) * (FloatOfByte(low | high << 4) - 32.0f), 0.0f};
  }
};

/// The values of the codes of iq4_nl and iq4_xs (core/formats/iq4_nl.h).
struct NonLinearBytes {
  static constexpr u32 kA = 0xbfad9881u, kB = 0xf6eaddcfu, kC = 0x26190d01u, kD = 0x71594535u;
  // For sums of two permutations. One by a code of the other half gives the sign of a byte, which is
  // -1 for all of the lower half and 0 for these of the upper one.
  static constexpr u32 kSumA = kA, kSumB = kB, kSumC = 0x271a0e02u, kSumD = 0x725a4636u;
};

/// Twice the values of the codes of mxfp4 (core/formats/mxfp4.h).
struct TwiceE2M1Bytes {
  static constexpr u32 kA = 0x03020100u, kB = 0x0c080604u, kC = 0xfdfeff00u, kD = 0xf4f8fafcu;
  // As above: the sign is -1 for all of the upper half but its zero, and 0 for these of the lower one.
  static constexpr u32 kSumA = 0x04030200u, kSumB = 0x0d090705u, kSumC = kC, kSumD = kD;
};

/// d; 16 bytes, the low nibbles values 0 .. 15, the high ones 16 .. 31.
template <>
struct BlockCodes<Type::kIQ4_NL> {
  static constexpr int kBlock = 32, kBytes = 18, kScales = 1, kZero = 0;
  static constexpr bool kHasOffset = false;
  using Table = NonLinearBytes;
  template <class Bytes>
  TW_DEVICE static u32 Nibbles(const Bytes& b, int at, int, int t) {
    return b.Word(at + 2 + 4 * t);
  }
  template <class Bytes>
  TW_DEVICE static void Pair(const Bytes& b, int at, int s, int t, u32 (&words)[2]) {
    LookUpNibbles<Table>(Nibbles(b, at, s, t), words);
  }
  template <class Bytes>
  TW_DEVICE static CodeScale ScaleOf(const Bytes& b, int at, int, int) {
    return {LowF16ToF32(b.Half(at)), 0.0f};
  }
};

/// d; two bytes with two high bits and four bytes with four low bits of eight scales less 32; eight
/// times 16 bytes as in iq4_nl.
template <>
struct BlockCodes<Type::kIQ4_XS> {
  static constexpr int kBlock = 256, kBytes = 136, kScales = 1, kZero = 0;
  static constexpr bool kHasOffset = false;
  using Table = NonLinearBytes;
  template <class Bytes>
  TW_DEVICE static u32 Nibbles(const Bytes& b, int at, int s, int t) {
    return b.Word(at + 8 + 16 * s + 4 * t);
  }
  template <class Bytes>
  TW_DEVICE static void Pair(const Bytes& b, int at, int s, int t, u32 (&words)[2]) {
    LookUpNibbles<Table>(Nibbles(b, at, s, t), words);
  }
  template <class Bytes>
  TW_DEVICE static CodeScale ScaleOf(const Bytes& b, int at, int s, int) {
    const u32 head = b.Word(at);
    const u32 scale = (b.Byte(at + 4 + s / 2) >> (4 * (s % 2)) & 15u) | (head >> (16 + 2 * s) & 3u)
                                                                            << 4;
    return {LowF16ToF32(head) * (FloatOfByte(scale) - 32.0f), 0.0f};
  }
};

/// e, for 2^(e - 128); 16 bytes as in iq4_nl. Every second block is at an odd address.
template <>
struct BlockCodes<Type::kMXFP4> {
  static constexpr int kBlock = 32, kBytes = 17, kScales = 1, kZero = 0;
  static constexpr bool kHasOffset = false;
  using Table = TwiceE2M1Bytes;
  template <class Bytes>
  TW_DEVICE static u32 Nibbles(const Bytes& b, int at, int, int t) {
    return b.Word(at + 1 + 4 * t);
  }
  template <class Bytes>
  TW_DEVICE static void Pair(const Bytes& b, int at, int s, int t, u32 (&words)[2]) {
    LookUpNibbles<Table>(Nibbles(b, at, s, t), words);
  }
  template <class Bytes>
  TW_DEVICE static CodeScale ScaleOf(const Bytes& b, int at, int, int) {
    const u32 e = b.Byte(at);
    return {FloatOf(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0.0f};  // the first two subnormal
  }
};

/// Whether a class is defined for a type, for code without the standard library's traits.
template <class...>
struct MakeVoid {
  using T = void;
};
template <Type kType, class = void>
inline constexpr bool kHasBlockCodes = false;
template <Type kType>
inline constexpr bool
    kHasBlockCodes<kType, typename MakeVoid<decltype(BlockCodes<kType>::kBytes)>::T> = true;

}  // namespace tw
