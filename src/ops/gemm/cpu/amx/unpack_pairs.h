#pragma once

#include "ops/gemm/cpu/amx/unpack.h"

/// Pairs of k as a tile of [16 pairs][16 columns][2], by f32.
///
/// A code becomes a float without a conversion: bits p .. of a word hold the code, so with the
/// exponent of 1 above them the word is x = 1 + code * 2^(p - 23), and one fused multiply-add gives
///   value = scale * (code - zero) + min = x * (scale * 2^(23-p)) + (min - scale * (2^(23-p) + zero))
/// where the summand in brackets is computed once a sub-block. It is exact without a minimum for
/// p = 8 and a scale of f16, and for p = 16 always. Going through vcvtdq2ps costs one more
/// operation a value, and the shift of each code to bit 0.
///
/// The rounding to bf16 is to nearest, ties away from zero: vcvtne2ps2bf16 puts the two sources one
/// after the other, and to interleave columns would cost two more shuffles.

namespace tilewright::gemm_int8 {
namespace {

/// What rows of pairs make of the four k of a quad: 0 and 1, 2 and 3, or, in QuadOrder, 0 and 2, 1 and 3.
enum class Pairing { kNeighbours, kQuadOrder };

/// Codes of kBits bits, a byte each, to values: x -> x * scale + offset.
template <int kBits>
class AffineMap {
 public:
  AffineMap(F scale, F min, int zero)
      : scale_(Vec::Mul(scale, Vec::Set(kPower))),
        offset_(Vec::Fma(scale, Vec::Set(-kPower - static_cast<float>(zero)), min)) {}

  /// Two rows of the tile from the codes of a quad.
  template <Pairing kPairing>
  inline __attribute__((always_inline)) void PutQuad(I bytes, std::uint8_t* out) const {
    const F value0 = ValueOf(Vec::Shift<kAt>(bytes)), value1 = ValueOf(Vec::Shift<kAt - 8>(bytes));
    const F value2 = ValueOf(Vec::Shift<kAt - 16>(bytes)),
            value3 = ValueOf(Vec::Shift<kAt - 24>(bytes));
    constexpr bool kNeighbours = kPairing == Pairing::kNeighbours;
    Vec::StorePairs(out, value0, kNeighbours ? value1 : value2);
    Vec::StorePairs(out + 64, kNeighbours ? value2 : value1, value3);
  }

 private:
  // Where a code is put; one of 8 bits at bit 16 would reach the exponent.
  static constexpr int kAt = kBits == 8 ? 8 : 16;
  static constexpr float kPower = static_cast<float>(1 << (23 - kAt));

  inline __attribute__((always_inline)) F ValueOf(I words) const {
    constexpr std::uint32_t kMask = ((1u << kBits) - 1) << kAt;
    return Vec::Fma(Vec::OneWith(words, kMask), scale_, offset_);
  }

  F scale_, offset_;
};

/// Weights in blocks, by one fused multiply-add a value.
template <class Block>
class AffinePairs {
 public:
  static constexpr int kAShift = 0;
  inline __attribute__((always_inline)) void Begin(const std::uint8_t* panel, int k, int step) {
    of_ = StepOf<Block>(panel, k, step);
  }
  template <int kHalf>
  inline __attribute__((always_inline)) void Put(std::uint8_t* out) const {
    constexpr int kSubBlock = Block::kFormat.sub_block < kBlock ? kHalf : 0;
    const AffineMap<PanelCodeBits(Block::kFormat)> map(of_.Scale(kSubBlock), of_.Min(kSubBlock),
                                                       ZeroOf(Block::kFormat));
    EachQuad<Block, kHalf>(of_.at, [&](I codes, int quad) {
      map.template PutQuad<Pairing::kNeighbours>(codes, out + 128 * quad);
    });
  }
  static void Prefetch(const StepAhead& ahead, int k) { PrefetchStep<Block>(ahead, k); }

 private:
  StepOf<Block> of_;
};

/// f16 in [k][16] as pairs, in two steps for one: the upper eight bits of each value, then what is left of it.
/// Both are bf16 without a rounding.
class F16Parts {
 public:
  static constexpr int kAShift = 1;  ///< two steps for one of activations
  inline __attribute__((always_inline)) void Begin(const std::uint8_t* panel, int k,
                                                   int part_step) {
    const int step = part_step / 2;
    at_ = panel + static_cast<std::size_t>(step) * kBlock * kRow;
    count_ = k - step * kBlock < kBlock ? k - step * kBlock : kBlock;
    low_ = part_step % 2 != 0;
  }
  template <int kHalf>
  inline __attribute__((always_inline)) void Put(std::uint8_t* out) const {
    const auto part = [&](int i) {
      if (i >= count_) return Vec::ZeroF();
      const F value = Vec::Quiet(Vec::LoadHalf(at_ + i * kRow));
      const F upper = Vec::Truncated(value);
      return low_ ? Vec::Sub(value, upper) : upper;
    };
    constexpr int kRows = kBlock / 2;
    for (int i = kRows * kHalf; i < kRows * kHalf + kRows; i += 2)
      Vec::StorePairs(out + 32 * i, part(i), part(i + 1));
  }
  static void Prefetch(const StepAhead& ahead, int) {
    constexpr int kBytes = kBlock / 2 * kRow;
    const std::uint8_t* next = ahead.panel + static_cast<std::size_t>(ahead.step) * kBytes;
    for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(next + line, 0, 2);
  }

 private:
  static constexpr int kRow = 2 * kPanelColumns;
  const std::uint8_t* at_;
  int count_;
  bool low_;
};

}  // namespace
}  // namespace tilewright::gemm_int8
