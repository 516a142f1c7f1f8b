#pragma once

#include "device/cuda/kernels/nibble_table.cuh"
#include "ops/gemm/cuda/gemv/gemv_codes.cuh"

// Codes of formats with fifth and third bits in bytes of their own, of two bits, and of tables.
// Codes are whole bytes before they become bf16, so that no sum has a bias.

namespace tw {

/// Bytes of up to 127 as the bf16 of byte - kZero, exactly: with 128 = 0x4300, 128 + byte less 128 +
/// kZero. The pairs of SplitBytes.
template <int kZero, bool kOrder>
TW_DEVICE void BytePairs(u32 word, u32 (&pair)[2]) {
  static_assert(kZero >= 0 && kZero < 128);
  constexpr u32 kLess = 0xc300c300u + kZero * 0x00010001u;
  u32 bytes[2];
  SplitBytes<kOrder>(word, bytes);
  TW_UNROLL
  for (int i = 0; i < 2; ++i)
    pair[i] = FmaBF16x2(AndOr(bytes[i], 0x00ff00ffu, 0x43004300u), kOneBF16x2, kLess);
}
/// The same of signed bytes.
template <bool kOrder>
TW_DEVICE void SignedPairs(u32 word, u32 (&pair)[2]) {
  u32 bytes[2];
  SplitBytes<kOrder>(word, bytes);
  pair[0] = SignedBytePair(bytes[0]);
  pair[1] = SignedBytePair(bytes[1]);
}

/// Four bits as bit 4 of four bytes.
TW_DEVICE u32 SpreadToFifth(u32 bits) { return (bits & 15u) * 0x02040810u & 0x10101010u; }

/// Values 4 t .. and 16 + 4 t .. of 32, of nibbles and fifth bits.
template <int kZero, bool kOrder>
TW_DEVICE void FiveBitPairs(u32 nibbles, u32 fifth, int t, u32 (&a)[2][2]) {
  BytePairs<kZero, kOrder>(AndOr(nibbles, 0x0f0f0f0fu, SpreadToFifth(fifth >> (4 * t))), a[0]);
  BytePairs<kZero, kOrder>(AndOr(nibbles >> 4, 0x0f0f0f0fu, SpreadToFifth(fifth >> (16 + 4 * t))),
                           a[1]);
}

/// d; 32 fifth bits; nibbles as q4_0's; less 16.
template <>
struct Codes<Type::kQ5_0> : Blocks32<22, EvenRow> {
  static constexpr bool kHasOffset = false;
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    const int at = 4 * kBytes * half;
    FiveBitPairs<16, kOrder>(row.Word<kBytes * kI + 6>(at + 4 * t), row.Word<kBytes * kI + 2>(at),
                             t, a);
  }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head&, int s, int) {
    return {LowF16ToF32(Load16Bits(row.data + kBytes * s)), 0.0f};
  }
};

/// d, m; codes as q5_0's. Rows are aligned to four bytes.
template <>
struct Codes<Type::kQ5_1> : Blocks32<24, WordRow> {
  static constexpr bool kHasOffset = true;
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    const u8* block = row.data + kBytes * (4 * half + kI);
    FiveBitPairs<0, kOrder>(LoadWord(block + (8 + 4 * t)), LoadWord(block + 4), t, a);
  }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head&, int s, int) {
    const u32 head = LoadWord(row.data + kBytes * s);
    return {LowF16ToF32(head), HighF16ToF32(head)};
  }
};

/// As q4_k, with 32 bytes of fifth bits before the nibbles: bit s of byte l is of value l of
/// sub-block s.
template <>
struct Codes<Type::kQ5_K> {
  using Nibbles = Codes<Type::kQ4_K>;
  static constexpr int kBlock = 256, kBytes = 176, kScales = 1;
  static constexpr bool kHasOffset = true;
  using Row = WordRow;
  using Head = Nibbles::Head;
  /// Of sub-block `s` of the four that begin `at` bytes of nibbles and `bit` fifth bits on.
  template <bool kOrder>
  TW_DEVICE static void PairsAt(const Row& row, int at, int shift, int bit, int t, u32 (&a)[2][2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 nibbles = LoadWord(row.data + (48 + at + 4 * t) + 16 * h) >> shift;
      const u32 fifth = LoadWord(row.data + (16 + 4 * t) + 16 * h) >> bit;
      BytePairs<0, kOrder>(AndOr(fifth << 4, 0x10101010u, nibbles & 0x0f0f0f0fu), a[h]);
    }
  }
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    PairsAt<kOrder>(row, 64 * half + 32 * (kI / 2), kI % 2 * 4, 4 * half + kI, t, a);
  }
  TW_DEVICE static Head LoadHead(const Row& row) { return Nibbles::LoadHead(row); }
  TW_DEVICE static CodeScale ScaleOf(const Row&, const Head& head, int s, int) {
    return Scaled(s < 4 ? head.scales[0] : head.scales[1], s < 4 ? head.mins[0] : head.mins[1],
                  static_cast<u32>(s) % 4, head.d, head.dmin);
  }
  TW_DEVICE static CodeScale Scaled(u32 scales, u32 mins, u32 i, float factor, float min_factor) {
    return Nibbles::Unbiased(scales, mins, i, factor, min_factor);
  }
};

/// A byte of scale (low nibble) and minimum for each 16 values; two halves of 32 bytes, two bits in
/// each for each run of 32 values; d, dmin.
template <>
struct Codes<Type::kQ2_K> {
  static constexpr int kBlock = 256, kBytes = 84, kScales = 2;
  static constexpr bool kHasOffset = true;
  using Row = WordRow;
  struct Head {
    float d, dmin;
  };
  template <bool kOrder>
  TW_DEVICE static void PairsAt(const Row& row, int at, int shift, int t, u32 (&a)[2][2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 bits = LoadWord(row.data + (16 + at + 4 * t) + 16 * h) >> shift;
      BytePairs<0, kOrder>(bits & 0x03030303u, a[h]);
    }
  }
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    PairsAt<kOrder>(row, 32 * half, 2 * kI, t, a);
  }
  TW_DEVICE static Head LoadHead(const Row& row) {
    const u32 factors = LoadWord(row.data + 80);
    return {LowF16ToF32(factors), HighF16ToF32(factors)};
  }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head& head, int s, int h) {
    const u32 factors = row.data[2 * s + h];
    return {head.d * (BytePlusMagic(factors & 15u, 0) - 8388608.0f),
            -head.dmin * (BytePlusMagic(factors >> 4, 0) - 8388608.0f)};
  }
};

/// 32 bytes of third bits, one for each run of 32 values; two bits as q2_k's; 12 bytes of scales of
/// six bits, less 32, each of 16 values (core/formats/q3_k.h); d. Codes less 4.
template <>
struct Codes<Type::kQ3_K> {
  static constexpr int kBlock = 256, kBytes = 110, kScales = 2;
  static constexpr bool kHasOffset = false;
  using Row = EvenRow;
  struct Head {
    float d;
  };
  template <int kAt, bool kOrder>
  TW_DEVICE static void HalfPairs(const Row& row, int at, int shift, int bit, int t,
                                  u32 (&pair)[2]) {
    const u32 low = row.Word<32 + kAt>(at + 4 * t) >> shift;
    const u32 third = row.Word<kAt>(4 * t) >> bit;
    BytePairs<4, kOrder>(AndOr(third << 2, 0x04040404u, low & 0x03030303u), pair);
  }
  template <bool kOrder>
  TW_DEVICE static void PairsAt(const Row& row, int at, int shift, int bit, int t, u32 (&a)[2][2]) {
    HalfPairs<0, kOrder>(row, at, shift, bit, t, a[0]);
    HalfPairs<16, kOrder>(row, at, shift, bit, t, a[1]);
  }
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    PairsAt<kOrder>(row, 32 * half, 2 * kI, 4 * half + kI, t, a);
  }
  TW_DEVICE static Head LoadHead(const Row& row) {
    return {LowF16ToF32(Load16Bits(row.data + 108))};
  }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head& head, int s, int h) {
    const int i = 2 * s + h;  // of the 16
    const u32 low = static_cast<u32>(row.data[96 + i % 8]) >> (i / 8 * 4) & 15u;
    const u32 high = static_cast<u32>(row.data[104 + i % 4]) >> (i / 4 * 2) & 3u;
    return {head.d * (BytePlusMagic(low | high << 4, 0) - (8388608.0f + 32.0f)), 0.0f};
  }
};

/// d; nibbles as q4_0's, places in a table.
template <>
struct Codes<Type::kIQ4_NL> : Blocks32<18, EvenRow> {
  static constexpr bool kHasOffset = false;
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    u32 low, high;
    LookUpNibbles(kNonLinearTable, row.Word<kBytes * kI + 2>(4 * kBytes * half + 4 * t), low, high);
    SignedPairs<kOrder>(low, a[0]);
    SignedPairs<kOrder>(high, a[1]);
  }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head&, int s, int) {
    return {LowF16ToF32(Load16Bits(row.data + kBytes * s)), 0.0f};
  }
};

/// d; the scales of eight sub-blocks, less 32: two high bits of each, four low ones; their nibbles,
/// as iq4_nl's.
template <>
struct Codes<Type::kIQ4_XS> {
  static constexpr int kBlock = 256, kBytes = 136, kScales = 1;
  static constexpr bool kHasOffset = false;
  using Row = WordRow;
  struct Head {
    float d;
    u32 high, low;
  };
  template <bool kOrder>
  TW_DEVICE static void PairsAt(const Row& row, int at, int t, u32 (&a)[2][2]) {
    u32 low, high;
    LookUpNibbles(kNonLinearTable, LoadWord(row.data + (8 + at + 4 * t)), low, high);
    SignedPairs<kOrder>(low, a[0]);
    SignedPairs<kOrder>(high, a[1]);
  }
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    PairsAt<kOrder>(row, 64 * half + 16 * kI, t, a);
  }
  TW_DEVICE static Head LoadHead(const Row& row) {
    const u32 factors = LoadWord(row.data);
    return {LowF16ToF32(factors), factors >> 16, LoadWord(row.data + 4)};
  }
  TW_DEVICE static CodeScale ScaleOf(const Row&, const Head& head, int s, int) {
    const u32 scale = (head.low >> (4 * s) & 15u) | (head.high >> (2 * s) & 3u) << 4;
    return {head.d * (BytePlusMagic(scale, 0) - (8388608.0f + 32.0f)), 0.0f};
  }
};

}  // namespace tw
