#pragma once

#include "device/cuda/kernels/block_codes.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Weights in GGUF blocks (core/formats/) as operands of mma.sync: the integer codes become
// pairs of bf16, exactly; what scales them is applied to sums of 32 (or 16) products. Codes<type>
// describes one row of a span of kGemvSpan values, sub-blocks of 32, that lies in shared memory
//   kBlock, kBytes        values and bytes of a block
//   kScales               scales of a sub-block: 1, or 2 with one for each 16 values
//   kHasOffset            whether a sub-block adds a multiple of the sum of its activations
//   Row                   where a row lies; Row::At of a 16-byte chunk and the bytes to skip in it
//   Pairs<i>(row, half, t, a)   a[h] are values 16 h + 4 t + {0, 2} and {1, 3} of sub-block
//                               4 half + i, as bf16; Pairs<i, kAdjacent>, but for q6_k: {0, 1}, {2, 3}
//   Head, LoadHead(row)   what the scales of a row have in common
//   ScaleOf(row, head, s, h)
// so that value i of sub-block s is scale * pair + offset; codes may be biased (kCodeBias), which the
// offset takes back. Formats of BlockCodes (block_codes.cuh) are made of that. The file compiles on the host too, where
// a test holds the values to those of DecodeRow.

namespace tw {

/// Four bytes from an address that is a multiple of four.
TW_DEVICE u32 LoadWord(const u8* p) { return *reinterpret_cast<const u32*>(p); }

/// A row at an address that is a multiple of four.
struct WordRow {
  const u8* data;
  TW_DEVICE u32 Byte(int at) const { return data[at]; }
  TW_DEVICE u32 Half(int at) const { return Load16Bits(data + at); }
  TW_DEVICE u32 Word(int at) const { return LoadWord(data + at); }
  TW_DEVICE static WordRow At(const u8* chunk, int skip) { return {chunk + skip}; }
  TW_DEVICE WordRow Plus(int bytes) const { return {data + bytes}; }
};

/// A row at an even address. Words at offsets that are 0 and 2 modulo 4 are found by a base and a
/// shift each, so that no load computes its own address.
struct EvenRow {
  const u8* data;
  const u8* base[2];
  u32 shift[2];
  TW_DEVICE static EvenRow At(const u8* chunk, int skip) {
    const bool odd = (skip & 2) != 0;
    const u8* aligned = chunk + (skip & ~3);
    return {chunk + skip, {aligned, aligned + (odd ? 4 : 0)}, {odd ? 16u : 0u, odd ? 0u : 16u}};
  }
  TW_DEVICE u32 Byte(int at) const { return data[at]; }
  TW_DEVICE u32 Half(int at) const { return Load16Bits(data + at); }
  /// Up to four bytes behind the word are read.
  TW_DEVICE u32 Word(int at) const {
    const bool odd = (at & 2) != 0;
    const u8* p = (odd ? base[1] : base[0]) + (odd ? at - 2 : at);
    return FunnelRight(LoadWord(p), LoadWord(p + 4), odd ? shift[1] : shift[0]);
  }
  /// A row that lies `bytes`, a multiple of four, behind this one.
  TW_DEVICE EvenRow Plus(int bytes) const {
    return {data + bytes, {base[0] + bytes, base[1] + bytes}, {shift[0], shift[1]}};
  }
  /// Bytes 0 and 1, and 2 and 3, of that word, as SplitBytes<kAdjacent> has them: it takes the bytes
  /// from where they are.
  template <int kAt>
  TW_DEVICE void AdjacentBytes(int at, u32 (&pair)[2]) const {
    constexpr int kOdd = kAt % 4 / 2;
    const u8* p = base[kOdd] + (at + (kAt - 2 * kOdd));
    const u32 low = LoadWord(p), high = LoadWord(p + 4);
    const u32 step = shift[kOdd] / 16 * 0x2222u;
    pair[0] = PermuteBytes(low, high, 0x1100u + step);
    pair[1] = PermuteBytes(low, high, 0x3322u + step);
  }
  /// The four bytes at kAt + at, a multiple of four, from their bit `bit` on, at most 15; up to four
  /// bytes behind them are read.
  template <int kAt>
  TW_DEVICE u32 Word(int at, u32 bit = 0) const {
    constexpr int kOdd = kAt % 4 / 2;
    const u8* p = base[kOdd] + (at + (kAt - 2 * kOdd));
    return FunnelRight(LoadWord(p), LoadWord(p + 4), shift[kOdd] + bit);
  }
};

/// A row whose words are at any address.
struct AnyRow {
  const u8* data;
  TW_DEVICE static AnyRow At(const u8* chunk, int skip) { return {chunk + skip}; }
  TW_DEVICE AnyRow Plus(int bytes) const { return {data + bytes}; }
  TW_DEVICE u32 Byte(int at) const { return data[at]; }
  /// Up to four bytes behind the word are read.
  TW_DEVICE u32 Word(int at) const {
    const u8* p = data + at;
    const auto beside = static_cast<u32>(reinterpret_cast<u64>(p)) & 3u;
    const u8* aligned = p - beside;
    return FunnelRight(LoadWord(aligned), LoadWord(aligned + 4), 8 * beside);
  }
};

/// By what the bytes of a block are a multiple of: one, two or four.
template <int kMultiple>
struct RowOf {
  using T = EvenRow;
};
template <>
struct RowOf<4> {
  using T = WordRow;
};
template <>
struct RowOf<1> {
  using T = AnyRow;
};
constexpr int RowMultiple(int bytes) { return bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1; }

/// Which two of four values are a pair: 0 and 2, 1 and 3, which takes a shift for both; or, for one
/// instruction more, neighbours.
inline constexpr bool kAlternate = false, kAdjacent = true;

/// The bytes of a pair of `word`, in bytes 0 and 2; the others are any.
template <bool kOrder>
TW_DEVICE void SplitBytes(u32 word, u32 (&pair)[2]) {
  pair[0] = kOrder == kAdjacent ? PermuteBytes(word, word, 0x1100u) : word;
  pair[1] = kOrder == kAdjacent ? PermuteBytes(word, word, 0x3322u) : word >> 8;
}

/// Nibbles n as the bf16 16 + n = 0x4180 | n << 3: no conversion and no subtraction. A bias of 16
/// costs two bits of the f32 sums where one of 128, without a shift, costs five.
inline constexpr float kCodeBias = 16.0f;
template <int kHigh, bool kOrder = kAlternate>
TW_DEVICE void NibblePairs(u32 word, u32 (&pair)[2]) {
  constexpr u32 kMask = 0x00780078u, kBase = 0x41804180u;
  if constexpr (kOrder == kAdjacent) {
    u32 bytes[2];
    SplitBytes<kOrder>(word, bytes);
    pair[0] = AndOr(kHigh ? bytes[0] >> 1 : bytes[0] << 3, kMask, kBase);
    pair[1] = AndOr(kHigh ? bytes[1] >> 1 : bytes[1] << 3, kMask, kBase);
  } else {
    pair[0] = AndOr(kHigh ? word >> 1 : word << 3, kMask, kBase);
    pair[1] = AndOr(word >> (kHigh ? 9 : 5), kMask, kBase);
  }
}

inline constexpr u32 kOneBF16x2 = 0x3f803f80u;

/// Signed bytes, exactly: with 128 = 0x4300, 128 + low seven bits less 128, or 256 when negative.
TW_DEVICE u32 SignedBytePair(u32 bytes) {
  return FmaBF16x2(AndOr(bytes, 0x007f007fu, 0x43004300u), kOneBF16x2,
                   AndOr(bytes, 0x00800080u, 0xc300c300u));
}
TW_DEVICE void SignedBytePairs(u32 word, u32 (&pair)[2]) {
  pair[0] = SignedBytePair(word);
  pair[1] = SignedBytePair(word >> 8);
}

template <Type kType, bool kOfBlockCodes = kHasBlockCodes<kType>>
struct Codes;

/// Of BlockCodes: signed bytes.
template <Type kType>
struct Codes<kType, true> {
  using Format = BlockCodes<kType>;
  static constexpr int kBlock = Format::kBlock, kBytes = Format::kBytes, kScales = Format::kScales;
  static constexpr bool kHasOffset = Format::kHasOffset;
  using Row = typename RowOf<RowMultiple(kBytes)>::T;
  struct Head {};
  /// Where the block of sub-block s of a span begins, and which one of the block it is.
  static constexpr int kSubBlocks = kBlock / 32;
  TW_DEVICE static int BlockOf(int s) { return s / kSubBlocks * kBytes; }
  template <bool kOrder>
  TW_DEVICE static void PairsOf(const Row& row, int s, int t, u32 (&a)[2][2]) {
    u32 words[2];
    Format::Pair(row, BlockOf(s), s % kSubBlocks, t, words);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      u32 bytes[2];
      SplitBytes<kOrder>(LessZero<Format::kZero>(words[h]), bytes);
      a[h][0] = SignedBytePair(bytes[0]);
      a[h][1] = SignedBytePair(bytes[1]);
    }
  }
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    PairsOf<kOrder>(row, 4 * half + kI, t, a);
  }
  TW_DEVICE static Head LoadHead(const Row&) { return {}; }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head&, int s, int h) {
    return Format::ScaleOf(row, BlockOf(s), s % kSubBlocks, h);
  }
};

/// d, dmin; 12 bytes of scales; four times 32 bytes whose low nibbles are sub-block 2 j and whose
/// high nibbles are sub-block 2 j + 1.
template <>
struct Codes<Type::kQ4_K> {
  static constexpr int kBlock = 256, kBytes = 144, kScales = 1;
  static constexpr bool kHasOffset = true;
  using Row = WordRow;
  struct Head {
    u32 scales[2], mins[2];  // six bits in each byte, of sub-blocks 0 .. 3 and 4 .. 7
    float d, dmin;
  };
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h)
      NibblePairs<kI % 2, kOrder>(
          LoadWord(row.data + (64 * half + 4 * t) + (16 + 32 * (kI / 2) + 16 * h)), a[h]);
  }
  TW_DEVICE static Head LoadHead(const Row& row) {
    const u32 factors = LoadWord(row.data), a = LoadWord(row.data + 4), b = LoadWord(row.data + 8),
              c = LoadWord(row.data + 12);
    return {{a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u)},
            {b & 0x3f3f3f3fu, (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u)},
            LowF16ToF32(factors),
            HighF16ToF32(factors)};
  }
  TW_DEVICE static CodeScale ScaleOf(const Row&, const Head& head, int s, int) {
    return Scaled(s < 4 ? head.scales[0] : head.scales[1], s < 4 ? head.mins[0] : head.mins[1],
                  static_cast<u32>(s) % 4, head.d, head.dmin);
  }
  TW_DEVICE static CodeScale Scaled(u32 scales, u32 mins, u32 i, float factor, float min_factor) {
    const float scale = BytePlusMagic(scales, i), min = BytePlusMagic(mins, i);
    // (2^23 + byte) * d - 2^23 * d: the fused operation rounds once, to what byte * d rounds to.
    const float d = Fma(scale, factor, -8388608.0f * factor);
    const float m = Fma(min, -min_factor, 8388608.0f * min_factor);
    return {d, Fma(d, -kCodeBias, m)};
  }
};

/// Eight blocks of one scale each.
template <int kBlockBytes, class RowType>
struct Blocks32 {
  using Row = RowType;
  static constexpr int kBlock = 32, kBytes = kBlockBytes, kScales = 1;
  struct Head {};
  TW_DEVICE static Head LoadHead(const Row&) { return {}; }
};

/// d; 16 bytes: low nibbles are values 0 .. 15, high ones 16 .. 31; less 8.
template <>
struct Codes<Type::kQ4_0> : Blocks32<18, EvenRow> {
  static constexpr bool kHasOffset = true;
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    const u32 word = row.Word<kBytes * kI + 2>(4 * kBytes * half + 4 * t);
    NibblePairs<0, kOrder>(word, a[0]);
    NibblePairs<1, kOrder>(word, a[1]);
  }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head&, int s, int) {
    const float d = LowF16ToF32(Load16Bits(row.data + kBytes * s));
    return {d, d * (-8.0f - kCodeBias)};
  }
};

/// d, m; codes as above. Rows are aligned to four bytes.
template <>
struct Codes<Type::kQ4_1> : Blocks32<20, WordRow> {
  static constexpr bool kHasOffset = true;
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    const u32 word = LoadWord(row.data + 4 * (kBytes * half + t) + (kBytes * kI + 4));
    NibblePairs<0, kOrder>(word, a[0]);
    NibblePairs<1, kOrder>(word, a[1]);
  }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head&, int s, int) {
    const u32 head = LoadWord(row.data + kBytes * s);
    const float d = LowF16ToF32(head);
    return {d, Fma(d, -kCodeBias, HighF16ToF32(head))};
  }
};

/// d; 32 signed bytes.
template <>
struct Codes<Type::kQ8_0> : Blocks32<34, EvenRow> {
  static constexpr bool kHasOffset = false;
  template <int kI, bool kOrder = kAlternate>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    const int at = 4 * kBytes * half + 4 * t;
    if constexpr (kOrder == kAdjacent) {
      u32 bytes[2];
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        if (h == 0) row.template AdjacentBytes<kBytes * kI + 2>(at, bytes);
        if (h == 1) row.template AdjacentBytes<kBytes * kI + 18>(at, bytes);
        a[h][0] = SignedBytePair(bytes[0]);
        a[h][1] = SignedBytePair(bytes[1]);
      }
    } else {
      SignedBytePairs(row.Word<kBytes * kI + 2>(at), a[0]);
      SignedBytePairs(row.Word<kBytes * kI + 18>(at), a[1]);
    }
  }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head&, int s, int) {
    return {LowF16ToF32(Load16Bits(row.data + kBytes * s)), 0.0f};
  }
};

/// Two halves of 128 values: 64 bytes of low nibbles (low ones sub-blocks 0 and 1 of the half, high
/// ones 2 and 3), 32 bytes with two more bits for each sub-block; then a signed byte of scale for
/// each 16 values, and d. Less 32.
template <>
struct Codes<Type::kQ6_K> {
  static constexpr int kBlock = 256, kBytes = 210, kScales = 2;
  static constexpr bool kHasOffset = false;
  using Row = EvenRow;
  struct Head {
    float d;
  };
  /// Of bytes 0 and 2: 128 + code, less 160, exactly.
  TW_DEVICE static u32 CodePair(u32 codes) {
    return FmaBF16x2(AndOr(codes, 0x00ff00ffu, 0x43004300u), kOneBF16x2, 0xc320c320u);
  }
  template <int kRun, int kAt>
  TW_DEVICE static void HalfPairs(const Row& row, int half, int t, u32 (&pair)[2]) {
    const u32 low = row.Word<32 * (kRun % 2) + kAt>(64 * half + 4 * t);
    const u32 high = row.Word<128 + kAt>(32 * half + 4 * t);
    const u32 codes = AndOr(kRun < 2 ? high << (4 - 2 * kRun) : high >> (2 * kRun - 4), 0x30303030u,
                            (kRun < 2 ? low : low >> 4) & 0x0f0f0f0fu);
    pair[0] = CodePair(codes);
    pair[1] = CodePair(codes >> 8);
  }
  template <int kI>
  TW_DEVICE static void Pairs(const Row& row, int half, int t, u32 (&a)[2][2]) {
    HalfPairs<kI, 0>(row, half, t, a[0]);
    HalfPairs<kI, 16>(row, half, t, a[1]);
  }
  TW_DEVICE static Head LoadHead(const Row& row) {
    return {LowF16ToF32(Load16Bits(row.data + 208))};
  }
  TW_DEVICE static CodeScale ScaleOf(const Row& row, const Head& head, int s, int h) {
    const u32 biased = row.data[192 + 2 * s + h] ^ 0x80u;
    return {head.d * (BytePlusMagic(biased, 0) - (8388608.0f + 128.0f)), 0.0f};
  }
};

}  // namespace tw
