#pragma once

#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemm_q/quarter.cuh"

// A part of a k-tile of one row of W as values in f16: scale * code + offset, rounded to 11 bits once (q4_k
// and q5_k: the scale and the minimum first). Where f16 does not hold them, all values of a row in a part are
// divided by one power of two, which the sums are multiplied with.
//
//   ScaledPart<kType, kBlocks>  of kBlocks sub-blocks of 32, two in each quarter of kGemvSpan values:
//     Plain(line, t, fits)      `line`: a ScaledLine of the type; t = lane % 4; the four lanes of a row share
//                               what they find. fits: left as it is, or false if f16 does not hold
//                               what this lane has seen
//     Divided(line, t, power)   the same divided by power.inverse. All lanes of the warp call it
//     Load<kJ>(line, lane)      a Raw: what sub-block kJ is made of, read from shared memory, and its
//                               scales. All lanes of the warp call it
//     Next<kJ>(line, lane, raw) the same, with the Raw of the sub-block in front of it
//     Values<kJ>(raw, a)        a[h] are values 16 h + 4 t + {0, 2} and {1, 3} of sub-block kJ

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

/// Whether f16 holds what `bound` bounds as it is; `least`: the least bound, but 0, with which it rounds as
/// little as it has to.
TW_DEVICE bool FitsF16(float bound, float least) {
  return bound < 32768.0f && (bound >= least || bound == 0.0f);
}

// Of x in bf16. `magnitudes`: a word of MaxMagnitudeBF16x2.
TW_DEVICE float LargerOfPair(u32 magnitudes) {
  const u32 low = magnitudes << 16 & 0x7fff0000u, high = magnitudes & 0x7fff0000u;
  return FloatOf(low > high ? low : high);
}
/// Beside a value from 2^-8 on f16 loses less than bf16 has lost.
TW_DEVICE bool FitsAsX(float largest) { return FitsF16(largest, 0x1p-8f); }
/// Four values of x as f16: the even and the odd ones, as ScaledPart has those of W.
template <class Scale>
TW_DEVICE void SplitFour(u32 first, u32 second, Scale scaled, u32& even, u32& odd) {
  even = PackF16(scaled(LowBF16ToF32(first)), scaled(LowBF16ToF32(second)));
  odd = PackF16(scaled(HighBF16ToF32(first)), scaled(HighBF16ToF32(second)));
}

/// Which of the kBlocks sub-blocks of a part lane t of four prepares, in its slot `slot` of kBlockSlots.
template <int kBlocks>
TW_DEVICE int BlockOf(int t, int slot) {
  return kBlocks >= 4 ? t + 4 * slot : t % kBlocks;
}
template <int kBlocks>
inline constexpr int kBlockSlots = (kBlocks + 3) / 4;

/// Half 0 or 1 of a word, in both halves.
TW_DEVICE u32 LowTwice(u32 word) { return PermuteBytes(word, 0, 0x1010u); }
TW_DEVICE u32 HighTwice(u32 word) { return PermuteBytes(word, 0, 0x3232u); }

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

/// The scales of a part: of the sub-blocks j of this lane, j % 4 = t, one word each.
///   Format::Head           what the scale of a sub-block is made of
///   HeadOf(line, j)        that of sub-block j
///   BoundOf(head)          what no magnitude of its values is above
///   kLeast                 of FitsF16
///   WordOf(head)           one f16 or two
///   WordOf(head, factor)   the same of values times `factor`
template <class Format, int kBlocks>
struct LaneScales {
  static constexpr int kSlots = kBlockSlots<kBlocks>;
  u32 words[kSlots];
  template <class Line>
  TW_DEVICE void SetPlain(const Line& line, int t, bool& fits) {
    TW_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      const auto head = Format::HeadOf(line, BlockOf<kBlocks>(t, slot));
      fits = FitsF16(Format::BoundOf(head), Format::kLeast) && fits;
      words[slot] = Format::WordOf(head);
    }
  }
  template <class Line>
  TW_DEVICE void SetDivided(const Line& line, int t, PowerOfTwo& power) {
    float bound = 0.0f;
    TW_UNROLL
    for (int slot = 0; slot < kSlots; ++slot)
      bound = Larger(Format::BoundOf(Format::HeadOf(line, BlockOf<kBlocks>(t, slot))), bound);
    power = PowerOfTwo::ForFour(bound);
    TW_UNROLL
    for (int slot = 0; slot < kSlots; ++slot)
      words[slot] = Format::WordOf(Format::HeadOf(line, BlockOf<kBlocks>(t, slot)), power.factor);
  }
  /// Of sub-block kJ of the row of this lane.
  template <int kJ>
  TW_DEVICE u32 Of(int lane) const {
    return FromLane(words[kJ / 4], (lane & ~3) | kJ % 4);
  }
};

/// A k-tile of a row of W in shared memory, of which a warp takes one of kParts parts: every kParts-th quarter, from
/// `part` on.
///
///   At(address, skip, part)   `address`: of what has been copied of the row, a multiple of 16; `skip`: bytes of
///                             that in front of the k-tile
///   Behind(bytes)             the row so many bytes behind it, a multiple of 16
///   First(part), kOffset<j>   the first sub-block of a part, and how far behind it sub-block j of the part is
template <Type kType, int kParts>
struct ScaledLine {
  const u8* row;
  int part;
  TW_DEVICE static ScaledLine At(const u8* address, int, int part) { return {address, part}; }
  TW_DEVICE ScaledLine Behind(int bytes) const { return {row + bytes, part}; }
  TW_DEVICE static int First(int part) { return 2 * part; }
  template <int kJ>
  static constexpr int kOffset = kJ / 2 * 2 * kParts + kJ % 2;
  /// Of kGemvSpan values, that of a sub-block of the part.
  TW_DEVICE int QuarterOf(int j) const { return j / 2 * kParts + part; }
};

/// By the exact codes of Quarter, which are less than 256: four instructions a value.
template <Type kType, int kBlocks>
struct ScaledPart {
  using F = Codes<kType>;
  float factor;
  struct Raw {
    u32 pairs[2][2];
    CodeScale scales[F::kScales];
  };
  template <class Line>
  TW_DEVICE static auto QuarterOf(const Line& line, int j) {
    return Quarter<kType>::At(F::Row::At(line.row, 0), line.QuarterOf(j));
  }
  template <class Line>
  TW_DEVICE static float BoundOf(const Line& line, int t) {
    float bound = 0.0f;
    TW_UNROLL
    for (int slot = 0; slot < kBlockSlots<kBlocks>; ++slot) {
      const int j = BlockOf<kBlocks>(t, slot);
      const auto quarter = QuarterOf(line, j);
      TW_UNROLL
      for (int h = 0; h < F::kScales; ++h) {
        const CodeScale first = quarter.template ScaleOf<0>(h);
        const CodeScale second = quarter.template ScaleOf<1>(h);
        const CodeScale& own = j % 2 == 0 ? first : second;
        bound = Larger(Fma(256.0f, Magnitude(own.scale), Magnitude(own.offset)), bound);
      }
    }
    return bound;
  }
  template <class Line>
  TW_DEVICE static ScaledPart Plain(const Line& line, int t, bool& fits) {
    fits = FitsF16(BoundOf(line, t), 0x1p-8f) && fits;
    return {1.0f};
  }
  template <class Line>
  TW_DEVICE static ScaledPart Divided(const Line& line, int t, PowerOfTwo& power) {
    power = PowerOfTwo::ForFour(BoundOf(line, t));
    return {power.factor};
  }
  template <int kJ, class Line>
  TW_DEVICE Raw Next(const Line& line, int lane, const Raw&) const {
    return Load<kJ>(line, lane);
  }
  template <int kJ, class Line>
  TW_DEVICE Raw Load(const Line& line, int lane) const {
    const auto quarter = QuarterOf(line, kJ);
    Raw raw;
    quarter.template Pairs<kJ % 2>(lane % 4, raw.pairs);
    TW_UNROLL
    for (int h = 0; h < F::kScales; ++h) {
      raw.scales[h] = quarter.template ScaleOf<kJ % 2>(h);
      raw.scales[h].scale *= factor;
      raw.scales[h].offset *= factor;
    }
    return raw;
  }
  template <int kJ>
  TW_DEVICE static void Values(const Raw& raw, u32 (&a)[2][2]) {
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

/// What the parts below have in common.
template <class Format, int kBlocks, class Part>
struct PartOfLanes : LaneScales<Format, kBlocks> {
  template <class Line>
  TW_DEVICE static Part Plain(const Line& line, int t, bool& fits) {
    Part part;
    part.SetPlain(line, t, fits);
    return part;
  }
  template <class Line>
  TW_DEVICE static Part Divided(const Line& line, int t, PowerOfTwo& power) {
    Part part;
    part.SetDivided(line, t, power);
    return part;
  }
  template <int kJ, class Line, class Raw>
  TW_DEVICE Raw Next(const Line& line, int lane, const Raw&) const {
    return static_cast<const Part*>(this)->template Load<kJ>(line, lane);
  }
};

/// A scale times a code of eight bits: what is below the least normal number of f16 is a multiple of its
/// least number, since the scale is one.
struct Q8_0Scales {
  static constexpr int kBytes = 34;
  static constexpr float kLeast = 0.0f;
  template <class Line>
  TW_DEVICE static const u8* Block(const Line& line, int j) {
    return line.row + kBytes * (2 * line.QuarterOf(j) + j % 2);
  }
  template <class Line>
  TW_DEVICE static u32 HeadOf(const Line& line, int j) {
    return Load16Bits(Block(line, j));
  }
  TW_DEVICE static float BoundOf(u32 d) { return 128.0f * Magnitude(LowF16ToF32(d)); }
  TW_DEVICE static u32 WordOf(u32 d) { return LowTwice(d); }
  TW_DEVICE static u32 WordOf(u32 d, float factor) {
    return PackF16(LowF16ToF32(d) * factor, LowF16ToF32(d) * factor);
  }
};

template <int kBlocks>
struct ScaledPart<Type::kQ8_0, kBlocks>
    : PartOfLanes<Q8_0Scales, kBlocks, ScaledPart<Type::kQ8_0, kBlocks>> {
  struct Raw {
    u32 words[2][2];  // of the first block, whose codes begin in the middle of a word, two each
    u32 scale;
  };
  template <int kJ, class Line>
  TW_DEVICE Raw Load(const Line& line, int lane) const {
    const u8* p = Q8_0Scales::Block(line, kJ) + 4 * (lane % 4);
    Raw raw;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      raw.words[h][0] = LoadWord(p + (kJ % 2 == 0 ? 16 * h : 2 + 16 * h));
      raw.words[h][1] = kJ % 2 == 0 ? LoadWord(p + (16 * h + 4)) : 0;
    }
    raw.scale = this->template Of<kJ>(lane);
    return raw;
  }
  template <int kJ>
  TW_DEVICE static void Values(const Raw& raw, u32 (&a)[2][2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 word =
          kJ % 2 == 0 ? PermuteBytes(raw.words[h][0], raw.words[h][1], 0x5432u) : raw.words[h][0];
      const u32 bytes = word ^ 0x80808080u;
      TW_UNROLL
      for (u32 i = 0; i < 2; ++i) {
        const u32 code = PermuteBytes(bytes, 0x64u, 0x4240u + 0x0101u * i);  // 1024 + byte
        a[h][i] = MulF16x2(AddF16x2(code, 0xe480e480u), raw.scale);          // - 1152
      }
    }
  }
};

/// Values of nibbles, with a scale and an offset in one word.
struct NibbleRaw {
  u32 words[2], fifths[2], scales;
};
template <int kJ>
TW_DEVICE void ScaledNibbles(const NibbleRaw& raw, u32 (&a)[2][2]) {
  const u32 scale = LowTwice(raw.scales), offset = HighTwice(raw.scales);
  TW_UNROLL
  for (int h = 0; h < 2; ++h) {
    NibblesF16<kJ>(raw.words[h], a[h], raw.fifths[h]);
    TW_UNROLL
    for (int i = 0; i < 2; ++i) a[h][i] = FmaF16x2(a[h][i], scale, offset);
  }
}

/// Its Codes are biased, for which its offset would be rounded.
struct Q4_1Scales {
  static constexpr int kBytes = 20;
  static constexpr float kLeast = 0.0f;  // as in q8_0
  template <class Line>
  TW_DEVICE static const u8* Block(const Line& line, int j) {
    return line.row + kBytes * (2 * line.QuarterOf(j) + j % 2);
  }
  template <class Line>
  TW_DEVICE static u32 HeadOf(const Line& line, int j) {
    return LoadWord(Block(line, j));
  }
  TW_DEVICE static float BoundOf(u32 head) {
    return Fma(16.0f, Magnitude(LowF16ToF32(head)), Magnitude(HighF16ToF32(head)));
  }
  TW_DEVICE static u32 WordOf(u32 head) { return head; }
  TW_DEVICE static u32 WordOf(u32 head, float factor) {
    return PackF16(LowF16ToF32(head) * factor, HighF16ToF32(head) * factor);
  }
};

template <int kBlocks>
struct ScaledPart<Type::kQ4_1, kBlocks>
    : PartOfLanes<Q4_1Scales, kBlocks, ScaledPart<Type::kQ4_1, kBlocks>> {
  struct Raw {
    u32 word, scales;
  };
  template <int kJ, class Line>
  TW_DEVICE Raw Load(const Line& line, int lane) const {
    return {LoadWord(Q4_1Scales::Block(line, kJ) + (4 + 4 * (lane % 4))),
            this->template Of<kJ>(lane)};
  }
  template <int kJ>
  TW_DEVICE static void Values(const Raw& raw, u32 (&a)[2][2]) {
    const u32 scale = LowTwice(raw.scales), offset = HighTwice(raw.scales);
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
template <int kCodes>
struct SixBitScales {
  static constexpr float kLeast = 0x1p-12f;  // a scale of 2^-16 has nine bits
  struct Head {
    float scale, min;
  };
  template <class Line>
  TW_DEVICE static Head HeadOf(const Line& line, int j) {
    const auto head = Codes<Type::kQ4_K>::LoadHead({line.row});
    const int at = 2 * line.QuarterOf(j) + j % 2;
    const u32 shift = static_cast<u32>(at) % 4 * 8;
    const auto byte = [&](const u32(&words)[2]) {
      return FloatOfByte((at < 4 ? words[0] : words[1]) >> shift);
    };
    return {byte(head.scales) * head.d, byte(head.mins) * head.dmin};
  }
  TW_DEVICE static float BoundOf(const Head& head) {
    return Fma(kCodes, Magnitude(head.scale), Magnitude(head.min));
  }
  TW_DEVICE static u32 WordOf(const Head& head) { return PackF16(head.scale, -head.min); }
  TW_DEVICE static u32 WordOf(const Head& head, float factor) {
    return PackF16(head.scale * factor, -head.min * factor);
  }
};

template <int kBlocks>
struct ScaledPart<Type::kQ4_K, kBlocks>
    : PartOfLanes<SixBitScales<16>, kBlocks, ScaledPart<Type::kQ4_K, kBlocks>> {
  using Raw = NibbleRaw;
  template <int kJ, class Line>
  TW_DEVICE Raw Load(const Line& line, int lane) const {
    const u8* p = line.row + (16 + 32 * line.QuarterOf(kJ) + 4 * (lane % 4));
    return {{LoadWord(p), LoadWord(p + 16)}, {}, this->template Of<kJ>(lane)};
  }
  template <int kJ>
  TW_DEVICE static void Values(const Raw& raw, u32 (&a)[2][2]) {
    ScaledNibbles<kJ % 2>(raw, a);
  }
};

/// Between the factors and the nibbles there are 32 bytes with the fifth bits of eight values each, one of
/// each sub-block.
template <int kBlocks>
struct ScaledPart<Type::kQ5_K, kBlocks>
    : PartOfLanes<SixBitScales<32>, kBlocks, ScaledPart<Type::kQ5_K, kBlocks>> {
  using Raw = NibbleRaw;
  template <int kJ, class Line>
  TW_DEVICE Raw Load(const Line& line, int lane) const {
    const int quarter = line.QuarterOf(kJ);
    const u8* bits = line.row + (16 + 4 * (lane % 4));
    const u8* p = bits + (32 + 32 * quarter);
    const u32 shift = static_cast<u32>(2 * quarter + kJ % 2);
    return {{LoadWord(p), LoadWord(p + 16)},
            {LoadWord(bits) >> shift, LoadWord(bits + 16) >> shift},
            this->template Of<kJ>(lane)};
  }
  template <int kJ>
  TW_DEVICE static void Values(const Raw& raw, u32 (&a)[2][2]) {
    ScaledNibbles<kJ % 2>(raw, a);
  }
};

}  // namespace tw
