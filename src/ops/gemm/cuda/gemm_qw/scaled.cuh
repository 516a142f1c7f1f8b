#pragma once

#include "ops/gemm/cuda/gemm_q/quarter.cuh"

// A quarter of a span of kGemvSpan values of one row of W, two sub-blocks of 32, as values in bf16:
// scale * code + offset in f32 as DecodeRow has it, rounded once.
//   At(row, q)            quarter q of the row that begins at `row`, a multiple of 16 bytes
//   Raw, Load<i>(t)       what sub-block i is made of, read from shared memory
//   Pairs<i>(t, raw, a)   a[h] are values 16 h + 4 t + {0, 1} and {2, 3} of sub-block i

namespace tw {

/// By the exact codes of Quarter: two instructions a value more than what a format can do by itself.
template <Type kType>
struct ScaledQuarter {
  using F = Codes<kType>;
  Quarter<kType> codes;
  struct Raw {
    u32 pairs[2][2];
    CodeScale scales[F::kScales];
  };
  TW_DEVICE static ScaledQuarter At(const u8* row, int q) {
    return {Quarter<kType>::At(F::Row::At(row, 0), q)};
  }
  template <int kI>
  TW_DEVICE Raw Load(int t) const {
    Raw raw;
    codes.template Pairs<kI>(t, raw.pairs);
    TW_UNROLL
    for (int h = 0; h < F::kScales; ++h) raw.scales[h] = codes.template ScaleOf<kI>(h);
    return raw;
  }
  template <int kI>
  TW_DEVICE static void Pairs(const Raw& raw, u32 (&a)[2][2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const CodeScale& own = raw.scales[F::kScales == 1 ? 0 : h];
      TW_UNROLL
      for (int i = 0; i < 2; ++i)
        a[h][i] = PackBF16(Fma(LowBF16ToF32(raw.pairs[h][i]), own.scale, own.offset),
                           Fma(HighBF16ToF32(raw.pairs[h][i]), own.scale, own.offset));
    }
  }
};

/// Byte i of `word` as 2^15 + byte: by one instruction, and times a factor of 11 bits an f32 that
/// holds all of the product.
TW_DEVICE float BytePlus32768(u32 word, u32 i) {
  return FloatOf(PermuteBytes(word, 0x47u, 0x4505u + (i << 4)));
}
/// A byte. Left in the offset of a format that has one, what it is more than its bits would round that.
TW_DEVICE float SmallByte(u32 word, u32 i) { return BytePlus32768(word, i) - 32768.0f; }

template <>
struct ScaledQuarter<Type::kQ8_0> {
  static constexpr int kBytes = 34;
  const u8* blocks;
  struct Raw {
    u32 words[2][2];  // of the first block, whose codes begin in the middle of a word, two each
    u32 d;
  };
  TW_DEVICE static ScaledQuarter At(const u8* row, int q) { return {row + 2 * kBytes * q}; }
  template <int kI>
  TW_DEVICE Raw Load(int t) const {
    const u8* p = blocks + 4 * t;
    Raw raw;
    raw.d = Load16Bits(blocks + kBytes * kI);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      raw.words[h][0] = LoadWord(p + (kI == 0 ? 16 * h : kBytes + 2 + 16 * h));
      raw.words[h][1] = kI == 0 ? LoadWord(p + (16 * h + 4)) : 0;
    }
    return raw;
  }
  template <int kI>
  TW_DEVICE static void Pairs(const Raw& raw, u32 (&a)[2][2]) {
    const float d = LowF16ToF32(raw.d);
    const float zero = d * -32896.0f;  // of a code plus 2^15 + 2^7, exactly
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 word =
          kI == 0 ? PermuteBytes(raw.words[h][0], raw.words[h][1], 0x5432u) : raw.words[h][0];
      const u32 bytes = word ^ 0x80808080u;
      TW_UNROLL
      for (u32 i = 0; i < 2; ++i)
        a[h][i] = PackBF16(Fma(BytePlus32768(bytes, 2 * i), d, zero),
                           Fma(BytePlus32768(bytes, 2 * i + 1), d, zero));
    }
  }
};

template <>
struct ScaledQuarter<Type::kQ4_K> {
  Quarter<Type::kQ4_K> codes;
  struct Raw {
    u32 words[2];
    float scale, min;
  };
  TW_DEVICE static ScaledQuarter At(const u8* row, int q) {
    return {Quarter<Type::kQ4_K>::At(WordRow::At(row, 0), q)};
  }
  template <int kI>
  TW_DEVICE Raw Load(int t) const {
    const float d = LowF16ToF32(codes.factors), dmin = HighF16ToF32(codes.factors);
    const float scale = Fma(BytePlusMagic(codes.scales, kI), d, -8388608.0f * d);
    const float min = Fma(BytePlusMagic(codes.mins, kI), dmin, -8388608.0f * dmin);
    const u8* p = codes.row.data + (16 + 4 * t);
    return {{LoadWord(p), LoadWord(p + 16)}, scale, min};
  }
  template <int kI>
  TW_DEVICE static void Pairs(const Raw& raw, u32 (&a)[2][2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 bytes = raw.words[h] >> (4 * kI) & 0x0f0f0f0fu;
      TW_UNROLL
      for (u32 i = 0; i < 2; ++i)
        a[h][i] = PackBF16(Fma(SmallByte(bytes, 2 * i), raw.scale, -raw.min),
                           Fma(SmallByte(bytes, 2 * i + 1), raw.scale, -raw.min));
    }
  }
};

/// Its Codes are biased, for which its offset would be rounded.
template <>
struct ScaledQuarter<Type::kQ4_1> {
  static constexpr int kBytes = 20;
  const u8* blocks;
  struct Raw {
    u32 head, codes;
  };
  TW_DEVICE static ScaledQuarter At(const u8* row, int q) { return {row + 2 * kBytes * q}; }
  template <int kI>
  TW_DEVICE Raw Load(int t) const {
    const u8* block = blocks + kBytes * kI;
    return {LoadWord(block), LoadWord(block + (4 + 4 * t))};
  }
  template <int kI>
  TW_DEVICE static void Pairs(const Raw& raw, u32 (&a)[2][2]) {
    const float d = LowF16ToF32(raw.head), m = HighF16ToF32(raw.head);
    u32 bytes[2];
    SplitNibbles(raw.codes, bytes);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      TW_UNROLL
      for (u32 i = 0; i < 2; ++i)
        a[h][i] = PackBF16(Fma(SmallByte(bytes[h], 2 * i), d, m),
                           Fma(SmallByte(bytes[h], 2 * i + 1), d, m));
    }
  }
};

}  // namespace tw
