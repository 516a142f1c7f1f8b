#pragma once

#include "device/cuda/kernels/block_codes.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Weights in GGUF blocks (core/formats/) as f32, eight values at a time, with the bits of
// DecodeRow: every product of a scale and a code is exact, and adding a minimum rounds once.
// BlockValues<type> has
//   kBlock, kBytes       values and bytes of a block
//   Eight(block, g, x)   values 8 g .. 8 g + 7 of the block, which is at an even address where kBytes
//                        is even
// and is made of BlockCodes<type> where there is one. The file compiles on the host too, where tests hold it to DecodeRow.

namespace tw {

TW_DEVICE float EvenF16(const u8* p) { return LowF16ToF32(Load16Bits(p)); }

/// Eight bytes from an even address: blocks of 18, 34 and 210 bytes promise no more.
TW_DEVICE void EvenEight(const u8* p, u32 (&words)[2]) {
  words[0] = EvenBytes{p}.Word(0);
  words[1] = EvenBytes{p}.Word(4);
}

/// Nibble i of eight bytes: the low ones for shift 0, the high ones for shift 4.
TW_DEVICE int NibbleOf(const u32 (&words)[2], int i, u32 shift) {
  return static_cast<int>(words[i / 4] >> (static_cast<u32>(i % 4) * 8 + shift) & 15u);
}

template <Type kType, bool kOfCodes = kHasBlockCodes<kType>>
struct BlockValues;

/// Of BlockCodes.
template <Type kType>
struct BlockValues<kType, true> {
  using Format = BlockCodes<kType>;
  static constexpr int kBlock = Format::kBlock, kBytes = Format::kBytes;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const typename BytesOfBlock<kBytes % 2 != 0>::T bytes{block};
    const int s = g / 4, h = g % 4 / 2;
    const CodeScale scale = Format::ScaleOf(bytes, 0, s, h);
    TW_UNROLL
    for (int word = 0; word < 2; ++word) {
      u32 words[2];
      Format::Pair(bytes, 0, s, g % 2 * 2 + word, words);
      TW_UNROLL
      for (int i = 0; i < 4; ++i) {
        const u32 bits = (h == 0 ? words[0] : words[1]) >> (8 * i);
        const auto code =
            static_cast<float>(static_cast<i8>(static_cast<u8>(bits)) - Format::kZero);
        x[4 * word + i] =
            Format::kHasOffset ? Fma(scale.scale, code, scale.offset) : scale.scale * code;
      }
    }
  }
};

/// d; 16 bytes, the low nibbles values 0 .. 15, the high ones 16 .. 31.
template <>
struct BlockValues<Type::kQ4_0> {
  static constexpr int kBlock = 32, kBytes = 18;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const float d = EvenF16(block);
    u32 codes[2];
    EvenEight(block + 2 + g % 2 * 8, codes);
    TW_UNROLL
    for (int i = 0; i < 8; ++i)
      x[i] = d * static_cast<float>(NibbleOf(codes, i, g < 2 ? 0u : 4u) - 8);
  }
};

/// d, m; codes as above.
template <>
struct BlockValues<Type::kQ4_1> {
  static constexpr int kBlock = 32, kBytes = 20;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const float d = EvenF16(block), m = EvenF16(block + 2);
    u32 codes[2];
    EvenEight(block + 4 + g % 2 * 8, codes);
    TW_UNROLL
    for (int i = 0; i < 8; ++i)
      x[i] = Fma(d, static_cast<float>(NibbleOf(codes, i, g < 2 ? 0u : 4u)), m);
  }
};

/// d; 32 signed bytes.
template <>
struct BlockValues<Type::kQ8_0> {
  static constexpr int kBlock = 32, kBytes = 34;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const float d = EvenF16(block);
    u32 codes[2];
    EvenEight(block + 2 + g * 8, codes);
    TW_UNROLL
    for (int i = 0; i < 8; ++i)
      x[i] = d * static_cast<float>(static_cast<i8>(codes[i / 4] >> (i % 4 * 8) & 255u));
  }
};

/// d, dmin; 12 bytes of 6-bit scales and minima (core/formats/six_bit_factors.h); four times 32
/// bytes whose low nibbles are sub-block 2 j and whose high nibbles are sub-block 2 j + 1.
template <>
struct BlockValues<Type::kQ4_K> {
  static constexpr int kBlock = 256, kBytes = 144;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const int s = g / 4;  // the sub-block
    const SixBits own = SixBitFactors(EvenBytes{block}, 4, s);
    const float step = EvenF16(block) * static_cast<float>(own.scale);
    const float offset = -EvenF16(block + 2) * static_cast<float>(own.min);
    u32 codes[2];
    EvenEight(block + 16 + s / 2 * 32 + g % 4 * 8, codes);
    TW_UNROLL
    for (int i = 0; i < 8; ++i)
      x[i] = Fma(step, static_cast<float>(NibbleOf(codes, i, s % 2 == 0 ? 0u : 4u)), offset);
  }
};

/// Two halves of 128 values: 64 bytes of low nibbles (low ones runs 0 and 1 of 32, high ones 2 and
/// 3), 32 bytes with two more bits for each run; then a signed byte of scale for each 16 values,
/// and d.
template <>
struct BlockValues<Type::kQ6_K> {
  static constexpr int kBlock = 256, kBytes = 210;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const int half = g / 16, run = g % 16 / 4, at = g % 4 * 8;
    u32 low[2], high[2];
    EvenEight(block + 64 * half + 32 * (run % 2) + at, low);
    EvenEight(block + 128 + 32 * half + at, high);
    const float step =
        EvenF16(block + 208) * static_cast<float>(static_cast<i8>(block[192 + g / 2]));
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const u32 top = high[i / 4] >> (i % 4 * 8 + 2 * run) & 3u;
      const int code = NibbleOf(low, i, run < 2 ? 0u : 4u) | static_cast<int>(top << 4);
      x[i] = step * static_cast<float>(code - 32);
    }
  }
};

/// Whether a type is stored in blocks that this file decodes.
template <Type kType, class = void>
inline constexpr bool kIsBlock = false;
template <Type kType>
inline constexpr bool kIsBlock<kType, typename MakeVoid<decltype(BlockValues<kType>::kBytes)>::T> =
    true;

}  // namespace tw
