#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "ops/gemm/cuda/gemm_qw/scaled.cuh"

// ScaledLine and ScaledPart of q6_k, whose k-tiles of 210 bytes begin at even addresses. A warp takes halves of 128
// values, of which 16 bytes have the low nibbles of two sub-blocks, and the same bytes the high bits of all four:
// sub-blocks 0, 2, 1 and 3 in turn, so that each word is read once.

namespace tw {

template <int kParts>
struct ScaledLine<Type::kQ6_K, kParts> {
  const u8* row;  // a multiple of four, not behind the k-tile
  u32 skip;       // 0 or 2: bytes in front of it
  int part;
  TW_DEVICE static ScaledLine At(const u8* address, int skip, int part) {
    return {address + (skip & ~3), static_cast<u32>(skip & 2), part};
  }
  TW_DEVICE ScaledLine Behind(int bytes) const { return {row + bytes, skip, part}; }
  /// The half that a part is or lies in. A part of four is one of the first two sub-blocks of it and the one that
  /// shares its words.
  TW_DEVICE static int HalfOf(int part) { return kParts == 4 ? part / 2 : part; }
  TW_DEVICE static int FirstOfHalf(int part) { return kParts == 4 ? part % 2 : 0; }
  TW_DEVICE static int First(int part) { return 4 * HalfOf(part) + FirstOfHalf(part); }
  TW_DEVICE static constexpr int OffsetOf(int j) { return j / 4 * 4 + j % 2 * 2 + j % 4 / 2; }
  template <int kJ>
  static constexpr int kOffset = OffsetOf(kJ);
  TW_DEVICE int SubBlockOf(int j) const { return First(part) + OffsetOf(j); }
  /// Four bytes of the k-tile from `at` on, a multiple of four; four bytes behind them are read.
  TW_DEVICE u32 Word(int at) const {
    return FunnelRight(LoadWord(row + at), LoadWord(row + (at + 4)), 8 * skip);
  }
  /// Two bytes from `at` on, an even number.
  TW_DEVICE u32 Half(int at) const { return Load16Bits(row + (at + static_cast<int>(skip))); }
};

/// A scale for each 16 values: of two bytes, and d. What is below the least normal number of f16 is a multiple of its
/// least number, as d is.
struct Q6_KScales {
  static constexpr float kLeast = 0.0f;
  static constexpr int kScales = 192, kD = 208;  // where they lie in a block
  struct Head {
    float scales[2];
  };
  template <class Line>
  TW_DEVICE static Head HeadOf(const Line& line, int j) {
    constexpr float kBias = 8388608.0f + 128.0f;
    const float d = LowF16ToF32(line.Half(kD));
    const u32 biased = line.Half(kScales + 2 * line.SubBlockOf(j)) ^ 0x8080u;
    return {{d * (BytePlusMagic(biased, 0) - kBias), d * (BytePlusMagic(biased, 1) - kBias)}};
  }
  TW_DEVICE static float BoundOf(const Head& head) {
    return 32.0f * Larger(Magnitude(head.scales[0]), Magnitude(head.scales[1]));
  }
  TW_DEVICE static u32 WordOf(const Head& head) { return PackF16(head.scales[0], head.scales[1]); }
  TW_DEVICE static u32 WordOf(const Head& head, float factor) {
    return PackF16(head.scales[0] * factor, head.scales[1] * factor);
  }
};

template <int kBlocks>
struct ScaledPart<Type::kQ6_K, kBlocks>
    : PartOfLanes<Q6_KScales, kBlocks, ScaledPart<Type::kQ6_K, kBlocks>> {
  static constexpr int kHigh = 128;  // where the high bits of a block begin
  // Of two sub-blocks behind each other in the part: nibbles, and of each byte two bits of the first in bits 0 and
  // 1, of the second in bits 4 and 5. Of one: its scales.
  struct Raw {
    u32 low[2], high[2], scales;
  };
  // Words of sub-block kJ, the first of two that share them.
  template <int kJ, class Line>
  TW_DEVICE static u32 Low(const Line& line, int lane, int h) {
    constexpr int kOffset = Line::template kOffset<kJ>;
    const int first = 64 * line.HalfOf(line.part) + 32 * line.FirstOfHalf(line.part);
    return line.Word(first + 4 * (lane % 4) + (64 * (kOffset / 4) + 32 * (kOffset % 4) + 16 * h));
  }
  template <int kJ, class Line>
  TW_DEVICE static u32 High(const Line& line, int lane, int h) {
    constexpr int kOffset = Line::template kOffset<kJ>;
    const u32 word = line.Word(32 * line.HalfOf(line.part) + 4 * (lane % 4) +
                               (kHigh + 32 * (kOffset / 4) + 16 * h));
    return word >> static_cast<u32>(2 * line.FirstOfHalf(line.part));
  }
  template <int kJ, class Line>
  TW_DEVICE Raw Load(const Line& line, int lane) const {
    Raw raw;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      raw.low[h] = Low<kJ>(line, lane, h);
      raw.high[h] = High<kJ>(line, lane, h);
    }
    raw.scales = this->template Of<kJ>(lane);
    return raw;
  }
  template <int kJ, class Line>
  TW_DEVICE Raw Next(const Line& line, int lane, const Raw& before) const {
    if constexpr (kJ % 4 == 0) return Load<kJ>(line, lane);
    Raw raw = before;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      if constexpr (kJ % 4 == 2) {
        raw.low[h] = Low<kJ>(line, lane, h);
        raw.high[h] = before.high[h] >> 2;
      }
    }
    raw.scales = this->template Of<kJ>(lane);
    return raw;
  }
  template <int kJ>
  TW_DEVICE static void Values(const Raw& raw, u32 (&a)[2][2]) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 low = kJ % 2 == 0 ? raw.low[h] : raw.low[h] >> 4;
      const u32 high = kJ % 2 == 0 ? raw.high[h] << 4 : raw.high[h];
      const u32 codes = AndOr(high, 0x30303030u, low & 0x0f0f0f0fu);
      constexpr u32 k1024 = 0x64006400u;
      a[h][0] = AndOr(codes, 0x00ff00ffu, k1024);
      a[h][1] = PermuteBytes(codes, k1024, 0x5351u);
      TW_UNROLL
      for (u32& pair : a[h]) {
        pair = AddF16x2(pair, 0xe420e420u);  // - 1056
        pair = h == 0 ? MulF16x2ByHalf<0>(pair, raw.scales) : MulF16x2ByHalf<1>(pair, raw.scales);
      }
    }
  }
};

}  // namespace tw
