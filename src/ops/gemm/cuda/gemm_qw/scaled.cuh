#pragma once

#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemm_q/quarter.cuh"

// A part of a k-tile of one row of W as values in f16. So that they stay within f16 whatever the scales of
// the file are, all values of a row in a part are divided by one power of two, which sums are multiplied
// with. A value is scale * code + offset, rounded to 11 bits once (q4_k: its scale and its minimum first).
//
//   ScaledPart<kType, kBlocks>  of kBlocks sub-blocks of 32, two in each quarter of kGemvSpan values:
//     At(lines, t)              `lines(q)` is quarter q of the row; t = lane % 4; all lanes of the warp
//                               call it, and the four of a row share what they find
//     Inverse()                 the power of two
//     kInFewRegisters           whether a part is to be made while another is multiplied
//     Load<kJ>(line, t)         a Raw: what sub-block kJ is made of, read from shared memory
//     Values<kJ>(raw, lane, a)  a[h] are values 16 h + 4 t + {0, 2} and {1, 3} of sub-block kJ; all
//                               lanes of the warp call it

namespace tw {

/// A power of two that brings `bound` to [2^13, 2^14), so that f16 holds what it bounds, and its inverse.
/// An infinity or NaN stays one.
struct PowerOfTwo {
  float factor, inverse;
  TW_DEVICE static PowerOfTwo For(float bound) {
    constexpr u32 kLeast = 14, kTop = 13;  // biased; below 2^-113 nothing is gained
    u32 exponent = BitsOf(bound) >> 23 & 0xffu;
    exponent = exponent < kLeast ? kLeast : exponent;
    return {FloatOf((254 + kTop - exponent) << 23), FloatOf((exponent - kTop) << 23)};
  }
  /// The same, of the largest of the bounds that four lanes beside each other have, in each of them.
  TW_DEVICE static PowerOfTwo ForFour(float bound) {
    u32 bits = BitsOf(bound) & 0x7fffffffu;
    TW_UNROLL
    for (int step = 1; step <= 2; step *= 2) {
      const u32 other = OfPartner(bits, step);
      bits = other > bits ? other : bits;
    }
    return For(FloatOf(bits));
  }
};

TW_DEVICE float Magnitude(float value) { return FloatOf(BitsOf(value) & 0x7fffffffu); }
TW_DEVICE float Larger(float a, float b) { return a > b ? a : b; }

/// Half 0 or 1 of a word, in both halves.
TW_DEVICE u32 LowTwice(u32 word) { return PermuteBytes(word, 0, 0x1010u); }
TW_DEVICE u32 HighTwice(u32 word) { return PermuteBytes(word, 0, 0x3232u); }

/// Which of the sub-blocks of a part a lane prepares, in its slot `slot`: lane t those of t and t + 4.
template <int kBlocks>
TW_DEVICE int BlockOfLane(int t, int slot) {
  return kBlocks >= 4 ? t + 4 * slot : t % kBlocks;
}
/// What lane kJ % 4 of this lane's row has in slot kJ / 4.
template <int kJ, int kSlots>
TW_DEVICE u32 OfBlock(const u32 (&slots)[kSlots], int lane) {
  return FromLane(slots[kJ / 4], (lane & ~3) | kJ % 4);
}

/// Codes 0 and 2, and 1 and 3, of the low (kHigh 0) or high nibbles of four bytes, in f16. `fifth`: words
/// with a fifth bit of each code in bit 0 of its byte.
template <int kHigh>
TW_DEVICE void NibblesF16(u32 word, u32 (&pair)[2], u32 fifth = 0) {
  constexpr u32 kMask = kHigh ? 0x00f000f0u : 0x000f000fu;
  constexpr u32 k1024 = 0x64006400u;  // a mantissa that is the code, or 16 times it
  TW_UNROLL
  for (u32 i = 0; i < 2; ++i) {
    const u32 high = (kHigh    ? i == 0 ? fifth << 8 : fifth
                      : i == 0 ? fifth << 4
                               : fifth >> 4) &
                     (kHigh ? 0x01000100u : 0x00100010u);
    const u32 code = AndOr(word >> (8 * i), kMask, k1024) | high;
    pair[i] = kHigh ? FmaF16x2(code, 0x2c002c00u, 0xd400d400u)  // / 16 - 64
                    : AddF16x2(code, 0xe400e400u);              // - 1024
  }
}

/// By the exact codes of Quarter, which are less than 256: four instructions a value.
template <Type kType, int kBlocks>
struct ScaledPart {
  using F = Codes<kType>;
  static constexpr bool kInFewRegisters = false;
  float factor;
  TW_DEVICE float Inverse() const { return FloatOf((254u << 23) - BitsOf(factor)); }
  struct Raw {
    u32 pairs[2][2];
    CodeScale scales[F::kScales];
  };
  template <class Lines>
  TW_DEVICE static ScaledPart At(const Lines& lines, int t) {
    float bound = 0.0f;
    TW_UNROLL
    for (int slot = 0; slot < (kBlocks + 3) / 4; ++slot) {
      const int block = BlockOfLane<kBlocks>(t, slot);
      const auto quarter = Quarter<kType>::At(F::Row::At(lines.row, 0), lines.QuarterOf(block));
      TW_UNROLL
      for (int h = 0; h < F::kScales; ++h) {
        const CodeScale first = quarter.template ScaleOf<0>(h);
        const CodeScale second = quarter.template ScaleOf<1>(h);
        const CodeScale& own = block % 2 == 0 ? first : second;
        bound = Larger(Fma(256.0f, Magnitude(own.scale), Magnitude(own.offset)), bound);
      }
    }
    return {PowerOfTwo::ForFour(bound).factor};
  }
  template <int kJ, class Lines>
  TW_DEVICE Raw Load(const Lines& lines, int t) const {
    const auto quarter = Quarter<kType>::At(F::Row::At(lines.row, 0), lines.QuarterOf(kJ));
    Raw raw;
    quarter.template Pairs<kJ % 2>(t, raw.pairs);
    TW_UNROLL
    for (int h = 0; h < F::kScales; ++h) {
      raw.scales[h] = quarter.template ScaleOf<kJ % 2>(h);
      raw.scales[h].scale *= factor;
      raw.scales[h].offset *= factor;
    }
    return raw;
  }
  template <int kJ>
  TW_DEVICE void Values(const Raw& raw, int, u32 (&a)[2][2]) const {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const CodeScale& own = raw.scales[F::kScales == 1 ? 0 : h];
      const auto value = [&](float code) { return Fma(code, own.scale, own.offset); };
      const u32 first = raw.pairs[h][0], second = raw.pairs[h][1];
      a[h][0] = PackF16(value(LowBF16ToF32(first)), value(LowBF16ToF32(second)));
      a[h][1] = PackF16(value(HighBF16ToF32(first)), value(HighBF16ToF32(second)));
    }
  }
};

template <int kBlocks>
struct ScaledPart<Type::kQ8_0, kBlocks> {
  static constexpr bool kInFewRegisters = true;
  static constexpr int kBytes = 34;
  u32 scales[(kBlocks + 3) / 4];  // twice, f16
  float inverse;
  TW_DEVICE float Inverse() const { return inverse; }
  struct Raw {
    u32 words[2][2];  // of the first block, whose codes begin in the middle of a word, two each
  };
  template <class Lines>
  TW_DEVICE static const u8* Block(const Lines& lines, int j) {
    return lines.row + kBytes * (2 * lines.QuarterOf(j) + j % 2);
  }
  template <class Lines>
  TW_DEVICE static ScaledPart At(const Lines& lines, int t) {
    constexpr int kSlots = (kBlocks + 3) / 4;
    float d[kSlots], bound = 0.0f;
    TW_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      d[slot] = LowF16ToF32(Load16Bits(Block(lines, BlockOfLane<kBlocks>(t, slot))));
      bound = Larger(Magnitude(d[slot]), bound);
    }
    const PowerOfTwo power = PowerOfTwo::ForFour(128.0f * bound);
    ScaledPart part;
    TW_UNROLL
    for (int slot = 0; slot < kSlots; ++slot)
      part.scales[slot] = PackF16(d[slot] * power.factor, d[slot] * power.factor);
    part.inverse = power.inverse;
    return part;
  }
  template <int kJ, class Lines>
  TW_DEVICE Raw Load(const Lines& lines, int t) const {
    const u8* p = Block(lines, kJ) + 4 * t;
    Raw raw;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      raw.words[h][0] = LoadWord(p + (kJ % 2 == 0 ? 16 * h : 2 + 16 * h));
      raw.words[h][1] = kJ % 2 == 0 ? LoadWord(p + (16 * h + 4)) : 0;
    }
    return raw;
  }
  template <int kJ>
  TW_DEVICE void Values(const Raw& raw, int lane, u32 (&a)[2][2]) const {
    const u32 scale = OfBlock<kJ>(scales, lane);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 word =
          kJ % 2 == 0 ? PermuteBytes(raw.words[h][0], raw.words[h][1], 0x5432u) : raw.words[h][0];
      const u32 bytes = word ^ 0x80808080u;
      TW_UNROLL
      for (u32 i = 0; i < 2; ++i) {
        const u32 code = PermuteBytes(bytes, 0x64u, 0x4240u + 0x0101u * i);  // 1024 + byte
        a[h][i] = MulF16x2(AddF16x2(code, 0xe480e480u), scale);              // - 1152
      }
    }
  }
};

/// Its Codes are biased, for which its offset would be rounded.
template <int kBlocks>
struct ScaledPart<Type::kQ4_1, kBlocks> {
  static constexpr bool kInFewRegisters = true;
  static constexpr int kBytes = 20;
  u32 scales[(kBlocks + 3) / 4];  // the scale and the offset, f16
  float inverse;
  TW_DEVICE float Inverse() const { return inverse; }
  struct Raw {
    u32 word;
  };
  template <class Lines>
  TW_DEVICE static const u8* Block(const Lines& lines, int j) {
    return lines.row + kBytes * (2 * lines.QuarterOf(j) + j % 2);
  }
  template <class Lines>
  TW_DEVICE static ScaledPart At(const Lines& lines, int t) {
    constexpr int kSlots = (kBlocks + 3) / 4;
    u32 head[kSlots];
    float bound = 0.0f;
    TW_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      head[slot] = LoadWord(Block(lines, BlockOfLane<kBlocks>(t, slot)));
      bound = Larger(
          Fma(16.0f, Magnitude(LowF16ToF32(head[slot])), Magnitude(HighF16ToF32(head[slot]))),
          bound);
    }
    const PowerOfTwo power = PowerOfTwo::ForFour(bound);
    ScaledPart part;
    TW_UNROLL
    for (int slot = 0; slot < kSlots; ++slot)
      part.scales[slot] =
          PackF16(LowF16ToF32(head[slot]) * power.factor, HighF16ToF32(head[slot]) * power.factor);
    part.inverse = power.inverse;
    return part;
  }
  template <int kJ, class Lines>
  TW_DEVICE Raw Load(const Lines& lines, int t) const {
    return {LoadWord(Block(lines, kJ) + (4 + 4 * t))};
  }
  template <int kJ>
  TW_DEVICE void Values(const Raw& raw, int lane, u32 (&a)[2][2]) const {
    const u32 both = OfBlock<kJ>(scales, lane);
    const u32 scale = LowTwice(both), offset = HighTwice(both);
    NibblesF16<0>(raw.word, a[0]);
    NibblesF16<1>(raw.word, a[1]);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      TW_UNROLL
      for (int i = 0; i < 2; ++i) a[h][i] = FmaF16x2(a[h][i], scale, offset);
    }
  }
};

/// What q4_k and q5_k have in common: blocks of 256, with a scale and a minimum of six bits for each 32.
template <Type kType, int kBlocks>
struct SixBitPart {
  static constexpr bool kInFewRegisters = true;
  u32 scales[(kBlocks + 3) / 4];  // the scale and, less than 0, the minimum, f16
  float inverse;
  TW_DEVICE float Inverse() const { return inverse; }
  template <class Lines>
  TW_DEVICE void Prepare(const Lines& lines, int t) {
    constexpr float kCodes = kType == Type::kQ4_K ? 16.0f : 32.0f;
    constexpr int kSlots = (kBlocks + 3) / 4;
    const auto head = Codes<Type::kQ4_K>::LoadHead({lines.row});
    float scale[kSlots], min[kSlots], bound = 0.0f;
    TW_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      const int block = BlockOfLane<kBlocks>(t, slot);
      const int at = 2 * lines.QuarterOf(block) + block % 2;
      const u32 shift = static_cast<u32>(at) % 4 * 8;
      const auto byte = [&](const u32(&words)[2]) {
        return FloatOfByte((at < 4 ? words[0] : words[1]) >> shift);
      };
      scale[slot] = byte(head.scales) * head.d;
      min[slot] = byte(head.mins) * head.dmin;
      bound = Larger(Fma(kCodes, Magnitude(scale[slot]), Magnitude(min[slot])), bound);
    }
    const PowerOfTwo power = PowerOfTwo::ForFour(bound);
    TW_UNROLL
    for (int slot = 0; slot < kSlots; ++slot)
      scales[slot] = PackF16(scale[slot] * power.factor, -min[slot] * power.factor);
    inverse = power.inverse;
  }
  /// Codes, of sub-block kJ, to values.
  template <int kJ>
  TW_DEVICE void Scale(int lane, u32 (&a)[2][2]) const {
    const u32 both = OfBlock<kJ>(scales, lane);
    const u32 scale = LowTwice(both), less = HighTwice(both);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      TW_UNROLL
      for (int i = 0; i < 2; ++i) a[h][i] = FmaF16x2(a[h][i], scale, less);
    }
  }
};

template <int kBlocks>
struct ScaledPart<Type::kQ4_K, kBlocks> : SixBitPart<Type::kQ4_K, kBlocks> {
  struct Raw {
    u32 words[2];
  };
  template <class Lines>
  TW_DEVICE static ScaledPart At(const Lines& lines, int t) {
    ScaledPart part;
    part.Prepare(lines, t);
    return part;
  }
  template <int kJ, class Lines>
  TW_DEVICE Raw Load(const Lines& lines, int t) const {
    const u8* p = lines.row + (16 + 32 * lines.QuarterOf(kJ) + 4 * t);
    return {{LoadWord(p), LoadWord(p + 16)}};
  }
  template <int kJ>
  TW_DEVICE void Values(const Raw& raw, int lane, u32 (&a)[2][2]) const {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) NibblesF16<kJ % 2>(raw.words[h], a[h]);
    this->template Scale<kJ>(lane, a);
  }
};

/// Between the factors and the nibbles there are 32 bytes with the fifth bits of eight values each, one of
/// each sub-block.
template <int kBlocks>
struct ScaledPart<Type::kQ5_K, kBlocks> : SixBitPart<Type::kQ5_K, kBlocks> {
  struct Raw {
    u32 words[2], fifths[2];
  };
  template <class Lines>
  TW_DEVICE static ScaledPart At(const Lines& lines, int t) {
    ScaledPart part;
    part.Prepare(lines, t);
    return part;
  }
  template <int kJ, class Lines>
  TW_DEVICE Raw Load(const Lines& lines, int t) const {
    const int quarter = lines.QuarterOf(kJ);
    const u8* bits = lines.row + (16 + 4 * t);
    const u8* p = bits + (32 + 32 * quarter);
    const u32 shift = static_cast<u32>(2 * quarter + kJ % 2);
    return {{LoadWord(p), LoadWord(p + 16)},
            {LoadWord(bits) >> shift, LoadWord(bits + 16) >> shift}};
  }
  template <int kJ>
  TW_DEVICE void Values(const Raw& raw, int lane, u32 (&a)[2][2]) const {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) NibblesF16<kJ % 2>(raw.words[h], a[h], raw.fifths[h]);
    this->template Scale<kJ>(lane, a);
  }
};

}  // namespace tw
