#pragma once

#include "device/cuda/kernels/nibble_table.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Weights in GGUF blocks (core/formats/) as f32, eight values at a time, with the bits of
// DecodeRow: every product of a scale and a code is exact, and adding a minimum rounds once.
// BlockValues<type> has
//   kBlock, kBytes       values and bytes of a block
//   Eight(block, g, x)   values 8 g .. 8 g + 7 of the block at an even address
// The file compiles on the host too, where tests hold it to DecodeRow.

namespace tw {

TW_DEVICE u32 EvenHalf(const u8* p) { return *reinterpret_cast<const u16*>(p); }
TW_DEVICE float EvenF16(const u8* p) { return F16ToF32(*reinterpret_cast<const u16*>(p)); }

/// Eight bytes from an even address: blocks of 18, 34 and 210 bytes promise no more.
TW_DEVICE void EvenEight(const u8* p, u32 (&words)[2]) {
  words[0] = EvenHalf(p) | EvenHalf(p + 2) << 16;
  words[1] = EvenHalf(p + 4) | EvenHalf(p + 6) << 16;
}

/// Nibble i of eight bytes: the low ones for shift 0, the high ones for shift 4.
TW_DEVICE int NibbleOf(const u32 (&words)[2], int i, u32 shift) {
  return static_cast<int>(words[i / 4] >> (static_cast<u32>(i % 4) * 8 + shift) & 15u);
}

/// Bit i of eight bits, as the fifth of a code.
TW_DEVICE int FifthBit(u32 bits, int i) { return static_cast<int>(bits >> i & 1u) << 4; }

/// Scale and minimum of sub-block s, six bits each (core/formats/six_bit_factors.h).
struct SixBitFactors {
  u32 scale, min;
  TW_DEVICE static SixBitFactors At(const u8* factors, int s) {
    if (s < 4) return {factors[s] & 63u, factors[s + 4] & 63u};
    return {(factors[s + 4] & 15u) | static_cast<u32>(factors[s - 4]) >> 6 << 4,
            static_cast<u32>(factors[s + 4]) >> 4 | static_cast<u32>(factors[s]) >> 6 << 4};
  }
};

template <Type kType>
struct BlockValues {
  static constexpr int kBlock = 0;  // not in blocks, or in those of no one
};
/// Whether a type is stored in blocks that this file decodes.
template <Type kType>
inline constexpr bool kIsBlock = BlockValues<kType>::kBlock > 0;

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
    const SixBitFactors factors = SixBitFactors::At(block + 4, s);
    const float step = EvenF16(block) * static_cast<float>(factors.scale);
    const float offset = -EvenF16(block + 2) * static_cast<float>(factors.min);
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

/// d; 32 fifth bits; nibbles as q4_0's; less 16.
template <>
struct BlockValues<Type::kQ5_0> {
  static constexpr int kBlock = 32, kBytes = 22;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const float d = EvenF16(block);
    u32 codes[2];
    EvenEight(block + 6 + g % 2 * 8, codes);
    TW_UNROLL
    for (int i = 0; i < 8; ++i)
      x[i] = d * static_cast<float>(
                     (NibbleOf(codes, i, g < 2 ? 0u : 4u) | FifthBit(block[2 + g], i)) - 16);
  }
};

/// d, m; codes as q5_0's.
template <>
struct BlockValues<Type::kQ5_1> {
  static constexpr int kBlock = 32, kBytes = 24;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const float d = EvenF16(block), m = EvenF16(block + 2);
    u32 codes[2];
    EvenEight(block + 8 + g % 2 * 8, codes);
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int code = NibbleOf(codes, i, g < 2 ? 0u : 4u) | FifthBit(block[4 + g], i);
      x[i] = Fma(d, static_cast<float>(code), m);
    }
  }
};

/// As q4_k, with 32 bytes of fifth bits before the nibbles: bit s of byte l is of value l of
/// sub-block s.
template <>
struct BlockValues<Type::kQ5_K> {
  static constexpr int kBlock = 256, kBytes = 176;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const int s = g / 4;
    const SixBitFactors factors = SixBitFactors::At(block + 4, s);
    const float step = EvenF16(block) * static_cast<float>(factors.scale);
    const float offset = -EvenF16(block + 2) * static_cast<float>(factors.min);
    u32 codes[2], fifth[2];
    EvenEight(block + 16 + g % 4 * 8, fifth);
    EvenEight(block + 48 + s / 2 * 32 + g % 4 * 8, codes);
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int code =
          NibbleOf(codes, i, s % 2 == 0 ? 0u : 4u) | FifthBit(fifth[i / 4], i % 4 * 8 + s);
      x[i] = Fma(step, static_cast<float>(code), offset);
    }
  }
};

/// A byte of scale (low nibble) and minimum for each 16 values; two halves of 32 bytes, two bits in
/// each for each run of 32 values; d, dmin.
template <>
struct BlockValues<Type::kQ2_K> {
  static constexpr int kBlock = 256, kBytes = 84;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const u32 factors = block[g / 2];
    const float step = EvenF16(block + 80) * static_cast<float>(factors & 15u);
    const float offset = -EvenF16(block + 82) * static_cast<float>(factors >> 4);
    u32 codes[2];
    EvenEight(block + 16 + g / 16 * 32 + g % 4 * 8, codes);
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const u32 code = codes[i / 4] >> (i % 4 * 8 + g % 16 / 4 * 2) & 3u;
      x[i] = Fma(step, static_cast<float>(code), offset);
    }
  }
};

/// 32 bytes of third bits, one for each run of 32 values; two bits as q2_k's; 12 bytes of scales of
/// six bits, less 32, each of 16 values (core/formats/q3_k.h); d. Codes less 4.
template <>
struct BlockValues<Type::kQ3_K> {
  static constexpr int kBlock = 256, kBytes = 110;
  TW_DEVICE static int ScaleOf(const u8* scales, int t) {
    const int low = scales[t % 8] >> (t < 8 ? 0 : 4) & 15;
    return (low | (scales[8 + t % 4] >> (t / 4 * 2) & 3) << 4) - 32;
  }
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const float step = EvenF16(block + 108) * static_cast<float>(ScaleOf(block + 96, g / 2));
    u32 third[2], codes[2];
    EvenEight(block + g % 4 * 8, third);
    EvenEight(block + 32 + g / 16 * 32 + g % 4 * 8, codes);
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const u32 low = codes[i / 4] >> (i % 4 * 8 + g % 16 / 4 * 2) & 3u;
      const u32 high = third[i / 4] >> (i % 4 * 8 + g / 4) & 1u;
      x[i] = step * static_cast<float>(static_cast<int>(low | high << 2) - 4);
    }
  }
};

/// Eight values that a table has for nibbles.
TW_DEVICE void TableEight(const NibbleTable& table, const u32 (&codes)[2], bool high, float step,
                          float (&x)[8]) {
  TW_UNROLL
  for (int w = 0; w < 2; ++w) {
    u32 values[2];
    LookUpNibbles(table, codes[w], values[0], values[1]);
    const u32 four = high ? values[1] : values[0];
    TW_UNROLL
    for (int i = 0; i < 4; ++i)
      x[4 * w + i] = step * static_cast<float>(static_cast<i8>(static_cast<u8>(four >> (8 * i))));
  }
}

/// d; nibbles as q4_0's, places in a table.
template <>
struct BlockValues<Type::kIQ4_NL> {
  static constexpr int kBlock = 32, kBytes = 18;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    u32 codes[2];
    EvenEight(block + 2 + g % 2 * 8, codes);
    TableEight(kNonLinearTable, codes, g >= 2, EvenF16(block), x);
  }
};

/// d; the scales of eight sub-blocks, less 32: two high bits of each, four low ones; their nibbles,
/// as iq4_nl's.
template <>
struct BlockValues<Type::kIQ4_XS> {
  static constexpr int kBlock = 256, kBytes = 136;
  TW_DEVICE static void Eight(const u8* block, int g, float (&x)[8]) {
    const int s = g / 4;
    const u32 low = block[4 + s / 2] >> (s % 2 * 4) & 15u,
              high = EvenHalf(block + 2) >> (2 * s) & 3u;
    const float step = EvenF16(block) * static_cast<float>(static_cast<int>(low | high << 4) - 32);
    u32 codes[2];
    EvenEight(block + 8 + 16 * s + g % 2 * 8, codes);
    TableEight(kNonLinearTable, codes, g % 4 >= 2, step, x);
  }
};

}  // namespace tw
