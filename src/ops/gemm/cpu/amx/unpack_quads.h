#pragma once

#include "ops/gemm/cpu/amx/tile_ops.h"
#include "ops/gemm/cpu/amx/unpack_pairs.h"

/// Pairs of k as a tile of [16 pairs][16 columns][2], by f16: 32 values a vector, of two k of each column.
///
/// A code becomes an f16 without a conversion: with the exponent of 1024 above it, it is 1024 + code (in the bits
/// above the lowest four, 1024 + 16 * code), less 1024 + zero exact, and then times the scale, or by one fused
/// multiply-add with the minimum, rounded to nearest even. A bf16 of so many exponent bits, 2^-112 times the
/// number, are the bits of the f16 shifted right by 3, which vpmulhrsw does with a rounding, ties away from
/// zero. In all 11 operations for 64 values, where f32 takes 19, and the most that this rounds, 2^-12 of a value, is
/// an eighth of what a bf16 does. So that small values are no subnormal ones, which tiles take as zero, scales go in
/// times kF16Up; Operand::kQuads says how activations make up for both powers.
///
/// The words of a quad of k are 0 and 2, then, shifted, 1 and 3: activations are packed in that order.
///
/// Scales that are too large for that, or no numbers, go through f32.

namespace tilewright::gemm_int8 {
namespace {

/// What goes through f16. Minima that are products of integers would be rounded to it: off by 2^-12 of themselves for
/// a whole sub-block (q4_k: the sum of 4,096 weights by 0.3 of what rounding them to bf16 is off by).
template <class Block>
constexpr bool kThroughF16 = HasInt8(Block::kFormat) && !Block::kFormat.has_table &&
                             (Block::kFormat.scale != Factor::kF16TimesInt ||
                              Block::kFormat.min == Factor::kNone);

template <class Block>
class F16Quads {
 public:
  static constexpr int kAShift = 0;
  inline __attribute__((always_inline)) void Begin(const std::uint8_t* panel, int k, int step) {
    of_ = StepOf<Block>(panel, k, step);
    wide_ = false;
    for (int part = 0; part < kParts; ++part) {
      scale_[part] = kIntegers
                         ? Vec::TwiceToF16(Vec::Mul(of_.Scale(part), Vec::Set(gemm_amx::kF16Up)))
                         : TimesUp(of_.at.scales);
      wide_ = wide_ || Vec::AnyAbove(scale_[part], kLargest);
    }
    if constexpr (kHasMin) {
      min_ = TimesUp(of_.at.scales + 2 * kPanelColumns);
      wide_ = wide_ || Vec::AnyAbove(min_, kLargest);
    }
    if constexpr (kNibbles) sixteenth_ = Vec::MulF16(scale_[0], Vec::SetWords(kSixteenth));
  }
  template <int kHalf>
  inline __attribute__((always_inline)) void Put(std::uint8_t* out) const {
    if (__builtin_expect(wide_, 0)) return PutWide<kHalf>(out);
    if constexpr (kNibbles) {
      TILEWRIGHT_UNROLL
      for (int line = 2 * kHalf; line < 2 * kHalf + 2; ++line) {
        const I even = Vec::Load(of_.at.codes + 64 * line), odd = Vec::WordsRight8(even);
        std::uint8_t *low = out + 128 * line, *high = low + 8 * 64;
        PutRow<0x0f, kZero>(even, scale_[0], low);
        PutRow<0x0f, kZero>(odd, scale_[0], low + 64);
        PutRow<0xf0, 16 * kZero>(even, sixteenth_, high);
        PutRow<0xf0, 16 * kZero>(odd, sixteenth_, high + 64);
      }
    } else {
      EachQuad<Block, kHalf>(of_.at, [&](I codes, int quad) {
        const I scale = scale_[kParts == 2 ? kHalf : 0];
        PutRow<0xff, kZero>(codes, scale, out + 128 * quad);
        PutRow<0xff, kZero>(Vec::WordsRight8(codes), scale, out + 128 * quad + 64);
      });
    }
  }
  static void Prefetch(const StepAhead& ahead, int k) { PrefetchStep<Block>(ahead, k); }

 private:
  static constexpr BlockFormat kFormat = Block::kFormat;
  static constexpr int kBits = PanelCodeBits(kFormat), kZero = ZeroOf(kFormat);
  static constexpr int kParts = kFormat.sub_block < kBlock ? 2 : 1;
  static constexpr bool kNibbles = kBits == 4, kHasMin = StepOf<Block>::kHasMin,
                        kIntegers = StepOf<Block>::kIntegers;
  // Bits of f16.
  static constexpr int k1024 = 0x6400, kSixteenth = 0x2c00;
  /// 2^(15 - bits): values stay below 2^15, and with a minimum of that size below what f16 ends at.
  static constexpr int kLargest = (15 + 15 - kBits) << 10;
  static_assert(gemm_amx::kF16Up == 1024 && !(kNibbles && kParts == 2));

  /// 16 f16, each in both words of its column, times kF16Up.
  static I TimesUp(const std::uint8_t* p) {
    return Vec::MulF16(Vec::TwiceLoadF16(p), Vec::SetWords(k1024));
  }
  /// A row of the tile: the values of the codes in the bits kMask of every word.
  template <int kMask, int kZeroThere>
  inline __attribute__((always_inline)) void PutRow(I words, I scale, std::uint8_t* row) const {
    const I code =
        Vec::SubF16(Vec::WordsWith(words, kMask, k1024), Vec::SetWords(k1024 + kZeroThere));
    const I value = kHasMin ? Vec::FmaF16(code, scale, min_) : Vec::MulF16(code, scale);
    Vec::Store(row, Vec::Shorten3(value));
  }
  /// Half of a step through f32, kF16Up * 2^-112 times its values. (Inlined: around a call no vector stays in its
  /// register, and the constants of all would be loaded anew each time.)
  template <int kHalf>
  inline __attribute__((always_inline)) void PutWide(std::uint8_t* out) const {
    const F down = Vec::Set(gemm_amx::kF16Up * 0x1p-112f);
    constexpr int kPart = kParts == 2 ? kHalf : 0;
    const AffineMap<kBits> map(Vec::Mul(of_.Scale(kPart), down), Vec::Mul(of_.Min(kPart), down),
                               kZero);
    EachQuad<Block, kHalf>(of_.at, [&](I codes, int quad) {
      map.template PutQuad<Pairing::kQuadOrder>(codes, out + 128 * quad);
    });
  }

  StepOf<Block> of_;
  I scale_[kParts], min_, sixteenth_;
  bool wide_;
};

}  // namespace
}  // namespace tilewright::gemm_int8
