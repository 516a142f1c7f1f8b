#pragma once

#include "ops/gemm/cuda/gemm_q/quarter.cuh"

// A quarter of a span of kGemvSpan values of one row of W, two sub-blocks of 32, as values in bf16:
// scale * code + offset in f32, rounded once.
//   At(row, q)       quarter q of the row that begins at `row`, a multiple of 16 bytes
//   Pairs<i>(t, a)   a[h] are values 16 h + 4 t + {0, 1} and {2, 3} of sub-block i

namespace tw {

/// By the exact codes of Quarter: two instructions a value more than what a format can do by itself.
template <Type kType>
struct ScaledQuarter {
  using F = Codes<kType>;
  Quarter<kType> codes;
  TW_DEVICE static ScaledQuarter At(const u8* row, int q) {
    return {Quarter<kType>::At(F::Row::At(row, 0), q)};
  }
  template <int kI>
  TW_DEVICE void Pairs(int t, u32 (&a)[2][2]) const {
    codes.template Pairs<kI>(t, a);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const CodeScale own = codes.template ScaleOf<kI>(F::kScales == 1 ? 0 : h);
      TW_UNROLL
      for (int i = 0; i < 2; ++i)
        a[h][i] = PackBF16(Fma(LowBF16ToF32(a[h][i]), own.scale, own.offset),
                           Fma(HighBF16ToF32(a[h][i]), own.scale, own.offset));
    }
  }
};

/// Byte i of `word` as 2^15 + byte: by one instruction, and times a factor of 11 bits an f32 that
/// holds all of the product.
TW_DEVICE float BytePlus32768(u32 word, u32 i) {
  return FloatOf(PermuteBytes(word, 0x47u, 0x4505u + (i << 4)));
}

template <>
struct ScaledQuarter<Type::kQ8_0> {
  static constexpr int kBytes = 34;
  const u8* blocks;
  TW_DEVICE static ScaledQuarter At(const u8* row, int q) { return {row + 2 * kBytes * q}; }
  template <int kI>
  TW_DEVICE void Pairs(int t, u32 (&a)[2][2]) const {
    const float d = LowF16ToF32(Load16Bits(blocks + kBytes * kI));
    // Of a code plus 2^15 + 2^7.
    const float zero = d * -32896.0f;
    const u8* p = blocks + 4 * t;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      // The codes of the first block begin in the middle of a word.
      const u32 word = kI == 0
                           ? PermuteBytes(LoadWord(p + 16 * h), LoadWord(p + (16 * h + 4)), 0x5432u)
                           : LoadWord(p + (kBytes + 2 + 16 * h));
      const u32 bytes = word ^ 0x80808080u;
      TW_UNROLL
      for (u32 i = 0; i < 2; ++i)
        a[h][i] = PackBF16(Fma(BytePlus32768(bytes, 2 * i), d, zero),
                           Fma(BytePlus32768(bytes, 2 * i + 1), d, zero));
    }
  }
};

}  // namespace tw
