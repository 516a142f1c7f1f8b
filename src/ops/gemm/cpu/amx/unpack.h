#pragma once

#include "ops/gemm/cpu/int8/block_products.h"

/// What every way to make a tile of bf16 of a step of a packed panel needs, over the vector type `Vec` of the
/// kernel file. Each way (unpack_pairs.h, unpack_rows.h, unpack_quads.h) is a class:
///   kAShift             1 where it takes two steps for one of activations
///   Begin(panel, k, step)  reads what both halves of the tile need; the panel has k values of each column
///   Put<half>(out)      writes one half, so that loads of tiles have room between them
///   Prefetch(ahead, k)  asks for what a later step will read
/// With a base class for what they share GCC 12 needs 50 to 100 instructions more for a product.

namespace tilewright::gemm_int8 {
namespace {

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

  StepOf() = default;
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

/// put(codes, quad) for the quads of a half of a step: the codes of four k of each column, a byte each.
template <class Block, int kHalf, class PutCodes>
inline __attribute__((always_inline)) void EachQuad(const PanelCursor<false>& at, PutCodes put) {
  constexpr int kBits = PanelCodeBits(Block::kFormat);
  if constexpr (Block::kFormat.sub_block < kBlock) {
    TILEWRIGHT_UNROLL
    for (int line = 0; line < 4; ++line) {
      I codes[1];
      HalfCodes<Block>(at, kHalf, line, codes);
      put(codes[0], line + 4 * kHalf);
    }
  } else if constexpr (kBits == 8) {
    TILEWRIGHT_UNROLL
    for (int line = 4 * kHalf; line < 4 * kHalf + 4; ++line)
      put(Vec::Load(at.codes + 64 * line), line);
  } else {
    const I top = kBits == 5 ? Vec::Load(at.codes + 256) : Vec::Zero();
    TILEWRIGHT_UNROLL
    for (int line = 2 * kHalf; line < 2 * kHalf + 2; ++line) {
      const I raw = Vec::Load(at.codes + 64 * line);
      put(WholeCodes<Block>(Vec::Low4(raw), top, line), line);
      put(WholeCodes<Block>(Vec::High4(raw), top, line + 4), line + 4);
    }
  }
}

}  // namespace
}  // namespace tilewright::gemm_int8
