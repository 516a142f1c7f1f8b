#pragma once

#include "ops/gemm/cpu/int8/block_products.h"

/// A step of a packed panel as a tile of bf16, over the vector type `Vec` of the kernel file.
///
/// A code becomes a float without a conversion: bits p .. of a word hold the code, so with the
/// exponent of 1 above them the word is x = 1 + code * 2^(p - 23), and one fused multiply-add gives
///   value = scale * (code - zero) + min = x * (scale * 2^(23-p)) + (min - scale * (2^(23-p) + zero))
/// where the summand in brackets is computed once a sub-block. It is exact without a minimum for
/// p = 8 and a scale of f16, and for p = 16 always; elsewhere (p >= 12) it is off by at most 2^-13 of
/// the scale, where values are rounded to bf16, by 2^-9 of themselves, anyway. (A power of two as scale could be too large for it:
/// formats that have one come with a table, see below.) Going through vcvtdq2ps costs one more
/// operation a value, and the shift of each code to bit 0.
///
/// The rounding to bf16 is to nearest, ties away from zero: vcvtne2ps2bf16 puts the two sources one
/// after the other, and to interleave columns would cost two more shuffles.

namespace tilewright::gemm_int8 {
namespace {

/// x -> x * scale + offset for codes at one bit position.
struct Affine {
  F scale, offset;
};

/// The affine map of codes at bit kAt.
template <int kAt>
inline __attribute__((always_inline)) Affine MapAt(F scale, F min, int zero) {
  constexpr float kPower = static_cast<float>(1 << (23 - kAt));
  return {Vec::Mul(scale, Vec::Set(kPower)),
          Vec::Fma(scale, Vec::Set(-kPower - static_cast<float>(zero)), min)};
}

/// Values of the codes of `kBits` bits at bit kAt of every word.
template <int kAt, int kBits>
inline __attribute__((always_inline)) F ValueAt(I words, const Affine& map) {
  constexpr std::uint32_t kMask = ((1u << kBits) - 1) << kAt;
  return Vec::Fma(Vec::OneWith(words, kMask), map.scale, map.offset);
}

/// Two rows of the tile from the codes of a quad, a byte each: k 0 and 1, k 2 and 3.
template <int kBits>
inline __attribute__((always_inline)) void PutQuad(I bytes, const Affine& map, std::uint8_t* out) {
  // A code of 8 bits at bit 16 would reach the exponent.
  constexpr int kAt = kBits == 8 ? 8 : 16;
  const I byte0 = Vec::Shift<kAt>(bytes), byte1 = Vec::Shift<kAt - 8>(bytes);
  const I byte2 = Vec::Shift<kAt - 16>(bytes), byte3 = Vec::Shift<kAt - 24>(bytes);
  const auto value = [&](I words) { return ValueAt<kAt, kBits>(words, map); };
  Vec::StorePairs(out, value(byte0), value(byte1));
  Vec::StorePairs(out + 64, value(byte2), value(byte3));
}

/// A line of nibbles: the quad of the low ones to `out`, that of the high ones to `out` + 8 rows.
/// Two shifts bring each nibble to a place where the map is good enough.
template <bool kHasMin>
inline __attribute__((always_inline)) void PutNibbles(I raw, F scale, F min, int zero,
                                                      std::uint8_t* out) {
  const Affine at12 = MapAt<12>(scale, min, zero), at16 = MapAt<16>(scale, min, zero);
  const I left = Vec::Shift<12>(raw), right = Vec::Shift<-12>(raw);
  std::uint8_t* high = out + 8 * 64;
  F low1, high2;
  if constexpr (kHasMin) {
    low1 = ValueAt<16, 4>(Vec::Shift<8>(raw), at16);
    high2 = ValueAt<12, 4>(Vec::Shift<-8>(raw), at12);
  } else {
    const Affine at8 = MapAt<8>(scale, min, zero);
    low1 = ValueAt<8, 4>(raw, at8);
    high2 = ValueAt<8, 4>(right, at8);
  }
  Vec::StorePairs(out, ValueAt<12, 4>(left, at12), low1);
  Vec::StorePairs(out + 64, ValueAt<16, 4>(raw, at16), ValueAt<12, 4>(right, at12));
  Vec::StorePairs(high, ValueAt<16, 4>(left, at16), ValueAt<12, 4>(raw, at12));
  Vec::StorePairs(high + 64, high2, ValueAt<16, 4>(right, at16));
}

/// A step of a panel that is needed soon.
struct StepAhead {
  const std::uint8_t* panel;
  int step;
};

/// Asks the L2 for a step of a panel of k: its codes, and the line of its factors.
template <class Block>
inline __attribute__((always_inline)) void PrefetchStep(const StepAhead& ahead, int k) {
  constexpr BlockFormat kFormat = Block::kFormat;
  const auto step = static_cast<std::size_t>(ahead.step);
  const std::uint8_t* codes = ahead.panel + CodeBytes(kFormat) * step;
  constexpr int kLines = (CodeBytes(kFormat) + 63) / 64;
  for (int line = 0; line < kLines; ++line) __builtin_prefetch(codes + 64 * line, 0, 2);
  __builtin_prefetch(
      ahead.panel +
          static_cast<std::size_t>(CodeBytes(kFormat)) * static_cast<std::size_t>(k / kBlock) +
          FactorBytes(kFormat) * step,
      0, 2);
}

/// Where step `step` of a panel lies, and the factors of the file's block around it.
template <class Block>
struct StepOf {
  static constexpr BlockFormat kFormat = Block::kFormat;
  static constexpr bool kIntegers = kFormat.scale == Factor::kF16TimesInt;
  static constexpr bool kHasMin = kFormat.min != Factor::kNone;
  static constexpr int kInside = kFormat.elements / kBlock;
  PanelCursor<false> at;
  F d, m;

  StepOf(const std::uint8_t* panel, int k, int step) {
    const int blocks = k / kBlock;
    at.codes =
        panel + static_cast<std::size_t>(CodeBytes(kFormat)) * static_cast<std::size_t>(step);
    at.near = at.far = {};  // PrefetchStep's work
    const std::uint8_t* factors =
        panel + static_cast<std::size_t>(CodeBytes(kFormat)) * static_cast<std::size_t>(blocks);
    d = m = Vec::ZeroF();
    if constexpr (kIntegers) {
      constexpr int kGroup = kInside * IntegerBytes(kFormat) + HalfBytes(kFormat);
      factors += static_cast<std::size_t>(step / kInside) * kGroup;
      const std::uint8_t* halves = factors + kInside * IntegerBytes(kFormat);
      at.scales = factors + step % kInside * IntegerBytes(kFormat);
      d = Vec::Quiet(Vec::LoadHalf(halves));
      if constexpr (kHasMin) m = Vec::Quiet(Vec::LoadHalf(halves + 2 * kPanelColumns));
    } else {
      at.scales = factors + static_cast<std::size_t>(step) * HalfBytes(kFormat);
    }
  }

  /// Scale and minimum of half `half` of the step: the only one, unless sub-blocks are half a step.
  F Scale(int half) const {
    if constexpr (!kIntegers) return Vec::Quiet(LoadScales<Block>(at.scales));
    const std::uint8_t* integers = at.scales + kPanelColumns * half;
    return Vec::Mul(
        d, kFormat.PairsIntegers() ? Vec::LoadLowNibbles(integers) : Vec::LoadInt8(integers));
  }
  F Min(int half) const {
    if constexpr (!kHasMin) return Vec::ZeroF();
    if constexpr (!kIntegers) return Vec::Quiet(Vec::LoadHalf(at.scales + 2 * kPanelColumns));
    constexpr int kScales = kBlock / kFormat.sub_block * kPanelColumns;
    const std::uint8_t* integers =
        at.scales + kPanelColumns * half + (kFormat.PairsIntegers() ? 0 : kScales);
    return Vec::Mul(
        m, kFormat.PairsIntegers() ? Vec::LoadHighNibbles(integers) : Vec::LoadInt8(integers));
  }
};

/// What the first half of a step unpacked as rows leaves for the second.
struct RowParts {
  alignas(64) std::uint8_t bytes[256];
  alignas(64) float scales[16];
  alignas(64) float mins[16];
};

/// Writes half `kHalf` of step `step` of `panel`, which has k values of each column, as a tile: half of
/// its rows. In halves, so that loads of tiles have room between them.
template <class Block, int kHalf>
__attribute__((noinline)) void UnpackStep(const std::uint8_t* panel, int k, int step,
                                          std::uint8_t* out, const StepAhead& ahead, RowParts&) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr int kBits = PanelCodeBits(kFormat);
  constexpr int kZero = ZeroOf(kFormat);
  const StepOf<Block> of(panel, k, step);
  if constexpr (kHalf == 0) PrefetchStep<Block>(ahead, k);
  if constexpr (kFormat.sub_block < kBlock) {
    const Affine map = MapAt<16>(of.Scale(kHalf), of.Min(kHalf), kZero);
    TILEWRIGHT_UNROLL
    for (int line = 0; line < 4; ++line) {
      I codes[1];
      HalfCodes<Block>(of.at, kHalf, line, codes);
      PutQuad<7>(codes[0], map, out + 128 * (line + 4 * kHalf));
    }
    return;
  }
  const F scale = of.Scale(0), min = of.Min(0);
  if constexpr (kBits == 4) {
    TILEWRIGHT_UNROLL
    for (int line = 2 * kHalf; line < 2 * kHalf + 2; ++line)
      PutNibbles<StepOf<Block>::kHasMin>(Vec::Load(of.at.codes + 64 * line), scale, min, kZero,
                                         out + 128 * line);
  } else if constexpr (kBits == 8) {
    const Affine map = MapAt<8>(scale, min, kZero);
    TILEWRIGHT_UNROLL
    for (int line = 4 * kHalf; line < 4 * kHalf + 4; ++line)
      PutQuad<8>(Vec::Load(of.at.codes + 64 * line), map, out + 128 * line);
  } else {
    const Affine map = MapAt<16>(scale, min, kZero);
    const I top = kBits == 5 ? Vec::Load(of.at.codes + 256) : Vec::Zero();
    TILEWRIGHT_UNROLL
    for (int line = 2 * kHalf; line < 2 * kHalf + 2; ++line) {
      const I raw = Vec::Load(of.at.codes + 64 * line);
      PutQuad<7>(WholeCodes<Block>(Vec::Low4(raw), top, line), map, out + 128 * line);
      PutQuad<7>(WholeCodes<Block>(Vec::High4(raw), top, line + 4), map, out + 128 * (line + 4));
    }
  }
}

/// Codes of four bits may go that way: with a table a column costs 2 x 16 values to scale and round,
/// without 32, and a minimum nothing more.
template <class Block>
constexpr bool kHasTableRows =
    gemm_int8::HasInt8(Block::kFormat) &&
    PanelCodeBits(Block::kFormat) == 4 && Block::kFormat.sub_block == kBlock;

/// The values of the codes before they are scaled.
struct CodeValues {
  alignas(64) float value[16];
};
template <class Block>
constexpr CodeValues ValuesOfCodes() {
  constexpr BlockFormat kFormat = Block::kFormat;
  CodeValues codes = {};
  for (int i = 0; i < 16; ++i)
    codes.value[i] = static_cast<float>(kFormat.has_table ? kFormat.values[i] : i - kFormat.zero);
  return codes;
}

/// Half `kHalf` of step `step` of `panel` as rows: eight of a tile of [16 columns][32], k in TableOrder.
template <class Block, int kHalf>
__attribute__((noinline)) void UnpackRows(const std::uint8_t* panel, int k, int step,
                                          std::uint8_t* out, const StepAhead& ahead,
                                          RowParts& parts) {
  static constexpr CodeValues kValues = ValuesOfCodes<Block>();
  constexpr bool kHasMin = StepOf<Block>::kHasMin;
  if constexpr (kHalf == 0) {
    const StepOf<Block> of(panel, k, step);
    PrefetchStep<Block>(ahead, k);
    Vec::SplitColumns(of.at.codes, parts.bytes);
    Vec::StorePart(parts.scales, of.Scale(0), 16);
    if constexpr (kHasMin) Vec::StorePart(parts.mins, of.Min(0), 16);
  }
  const F values = Vec::LoadPart(kValues.value, 16);
  const auto table = [&](int column) {
    const F scale = Vec::Set(parts.scales[column]);
    if constexpr (kHasMin) return Vec::Fma(values, scale, Vec::Set(parts.mins[column]));
    return Vec::Mul(values, scale);
  };
  TILEWRIGHT_UNROLL
  for (int column = 8 * kHalf; column < 8 * kHalf + 8; column += 2) {
    Vec::PutTableRows(table(column), table(column + 1), parts.bytes + Vec::ColumnAt(column),
                      parts.bytes + Vec::ColumnAt(column + 1), out + 64 * column);
  }
}

/// Half `kHalf` of step `part_step` / 2 of f16 in [k][16] as UnpackStep, in two steps for one: the upper
/// eight bits of each value, then what is left of it. Both are bf16 without a rounding.
template <int kHalf>
void UnpackF16(const std::uint8_t* panel, int k, int part_step, std::uint8_t* out,
               const StepAhead& ahead, RowParts&) {
  constexpr int kRow = 2 * kPanelColumns, kRows = kBlock / 2;
  const int step = part_step / 2, first = kRows * kHalf;
  const std::uint8_t* next =
      ahead.panel + static_cast<std::size_t>(2 * ahead.step + kHalf) * (kRows / 2 * kRow);
  for (int line = 0; line < kRows / 2 * kRow; line += 64) __builtin_prefetch(next + line, 0, 2);
  panel += static_cast<std::size_t>(step) * kBlock * kRow;
  const int count = k - step * kBlock < kBlock ? k - step * kBlock : kBlock;
  const auto part = [&](int i) {
    if (i >= count) return Vec::ZeroF();
    const F value = Vec::Quiet(Vec::LoadHalf(panel + i * kRow));
    const F upper = Vec::Truncated(value);
    return part_step % 2 == 0 ? upper : Vec::Sub(value, upper);
  };
  for (int i = first; i < first + kRows; i += 2)
    Vec::StorePairs(out + 32 * i, part(i), part(i + 1));
}

}  // namespace
}  // namespace tilewright::gemm_int8
