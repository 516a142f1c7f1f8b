#pragma once

#include "ops/gemm/cpu/int8/layout.h"

/// A block of 32 k of a panel times R rows, for each width of code: the innermost part of
/// micro_kernel.h, written as that over the kernel file's vector type `Vec`.

/// Loops over rows and quads must unroll, or the accumulators live in memory. The scalar file has
/// nothing to gain and says so.
#ifndef TILEWRIGHT_UNROLL
#define TILEWRIGHT_UNROLL _Pragma("GCC unroll 16")
#endif

namespace tilewright::gemm_int8 {
namespace {

using F = Vec::F;
using I = Vec::I;

/// Where the blocks of one half panel (or whole panel, when a vector holds 16 columns) are read
/// from.
struct PanelCursor {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  const std::uint8_t* ahead;  ///< what to prefetch; null: nothing
};

/// Blocks that the software prefetch runs ahead of the arithmetic. On one Zen 4 core that streams
/// q4_1 from memory: no prefetch 19 GB/s, 10 blocks 22, 25 blocks 28, 40 blocks 29, 80 blocks 26;
/// q8_0 wants the same number of blocks. It crosses from panel to panel, and beyond the last one:
/// prefetches never fault.
constexpr int kPrefetchBlocks = 40;

/// Prefetches part `kPart` of `kParts` of what a block of panels takes, codes and scales alike.
/// Blocks of more than five lines do it in two parts: bursts of four or five lines stream fastest
/// (q8_0, one core, GB/s: nine at once 22, five and four 27, one by one 14, seventeen every other
/// block 17).
template <class Block, int kPart, int kParts>
inline __attribute__((always_inline)) void Prefetch(const std::uint8_t* ahead) {
  constexpr int kBytes = CodeBytes(Block::kFormat) + FactorBytes(Block::kFormat);
  constexpr int kLines = (kBytes + 63) / 64;
  constexpr int kEach = (kLines + kParts - 1) / kParts;
  if (ahead == nullptr) return;
  TILEWRIGHT_UNROLL
  for (int line = kPart * kEach; line < kPart * kEach + kEach && line < kLines; ++line) {
    __builtin_prefetch(ahead + 64 * line, 0, 3);
  }
}

/// The width of what is multiplied, for which each instruction set has a way to sum products
/// without saturation: codes of 4 bits or less, of 6 or less, or bytes, of which a lookup table
/// makes some.
template <class Block>
constexpr int kProductBits = Block::kFormat.has_table             ? 8
                             : PanelCodeBits(Block::kFormat) <= 4 ? 4
                             : PanelCodeBits(Block::kFormat) <= 6 ? 6
                                                                  : 8;

template <class Block>
inline __attribute__((always_inline)) I StartAt(const void* correction) {
  if constexpr (kProductBits<Block> == 4) return Vec::Start4(correction);
  if constexpr (kProductBits<Block> == 6) return Vec::Start6(correction);
  if constexpr (kProductBits<Block> == 8) return Vec::Start8(correction);
}
template <class Block>
inline __attribute__((always_inline)) I DotOf(I sum, I codes, I x) {
  if constexpr (kProductBits<Block> == 4) return Vec::Dot4(sum, codes, x);
  if constexpr (kProductBits<Block> == 6) return Vec::Dot6(sum, codes, x);
  if constexpr (kProductBits<Block> == 8) return Vec::Dot8(sum, codes, x);
}
/// The sum that began at StartAt(correction), or at zero for a format with a minimum.
template <class Block>
inline __attribute__((always_inline)) I SumOf(I sum, const void* correction) {
  if constexpr (kProductBits<Block> != 4) return sum;
  if constexpr (Block::kFormat.min != Factor::kNone) return Vec::Finish4(sum);
  return Vec::Finish4(sum, correction);
}

/// Sums of one block for R rows: out[r] += code . q[r] over quads; `x` is the record of the block.
template <class Block, int R>
inline __attribute__((always_inline)) void DotQuad(I (&sum)[R], I codes, const std::uint8_t* x,
                                                   int quad) {
  TILEWRIGHT_UNROLL
  for (int r = 0; r < R; ++r)
    sum[r] = DotOf<Block>(sum[r], codes, Vec::Broadcast(x + 32 * r + 4 * quad));
}

/// The codes of a quad from their nibbles; `top` is the line of fifth bits.
template <class Block>
inline __attribute__((always_inline)) I WholeCodes(I nibbles, I top, int quad) {
  if constexpr (Block::kFormat.has_table) {
    static constexpr CodeTable kTable = TableOf(Block::kFormat);
    return Vec::Lookup(kTable.value, nibbles);
  } else if constexpr (PanelCodeBits(Block::kFormat) == 5) {
    return Vec::JoinBit(nibbles, top, quad, 4);
  } else {
    return nibbles;
  }
}

/// The scales of columns of a format without integers.
template <class Block>
inline __attribute__((always_inline)) F LoadScales(const std::uint8_t* p) {
  if constexpr (Block::kFormat.scale == Factor::kPowerOfTwo) return Vec::LoadPowers(p);
  return Vec::LoadHalf(p);
}

/// A block that is one sub-block, of codes of 4 or 5 bits. `d` and `m`: factors of the file's block
/// around the block, where its sub-blocks have integers.
template <class Block, int R>
inline __attribute__((always_inline)) void OneSubBlock(const PanelCursor& at, F d, F m,
                                                       const std::uint8_t* x, F (&acc)[R]) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr bool kHasMin = kFormat.min != Factor::kNone;
  constexpr bool kIntegers = kFormat.scale == Factor::kF16TimesInt;
  constexpr int kParts = PanelCodeBits(kFormat) == 5 ? 2 : 1;
  Prefetch<Block, 0, kParts>(at.ahead);
  const auto* dx = reinterpret_cast<const float*>(x + 32 * R);
  const auto* correction = dx + R;
  I sum[R];
  TILEWRIGHT_UNROLL
  for (int r = 0; r < R; ++r) sum[r] = kHasMin ? Vec::Zero() : StartAt<Block>(correction + r);
  const I top = PanelCodeBits(kFormat) == 5 ? Vec::Load(at.codes + 256) : Vec::Zero();
  TILEWRIGHT_UNROLL
  for (int line = 0; line < 4; ++line) {
    if (kParts == 2 && line == 2) Prefetch<Block, 1, 2>(at.ahead);
    const I raw = Vec::Load(at.codes + 64 * line);
    DotQuad<Block, R>(sum, WholeCodes<Block>(Vec::Low4(raw), top, line), x, line);
    DotQuad<Block, R>(sum, WholeCodes<Block>(Vec::High4(raw), top, line + 4), x, line + 4);
  }
  // Scale times integer is exact in f32: 11 bits by 8.
  const F dw = kIntegers ? Vec::Mul(d, Vec::LoadInt8(at.scales)) : LoadScales<Block>(at.scales);
  if constexpr (!kHasMin) {
    TILEWRIGHT_UNROLL
    for (int r = 0; r < R; ++r) {
      const F scale = Vec::Mul(dw, Vec::BroadcastF(dx + r));
      acc[r] = Vec::Fma(Vec::ToFloat(SumOf<Block>(sum[r], correction + r)), scale, acc[r]);
    }
  } else {
    const F mw = kIntegers ? Vec::Mul(m, Vec::LoadInt8(at.scales + kPanelColumns))
                           : Vec::LoadHalf(at.scales + 2 * kPanelColumns);
    TILEWRIGHT_UNROLL
    for (int r = 0; r < R; ++r) {
      const F scale = Vec::Mul(dw, Vec::BroadcastF(dx + r));
      acc[r] = Vec::Fma(mw, Vec::BroadcastF(correction + r), acc[r]);
      acc[r] = Vec::Fma(Vec::ToFloat(SumOf<Block>(sum[r], nullptr)), scale, acc[r]);
    }
  }
}

template <class Block, int R>
inline __attribute__((always_inline)) void Codes8(const PanelCursor& at, const std::uint8_t* x,
                                                  F (&acc)[R]) {
  const auto* d = reinterpret_cast<const float*>(x + 32 * R);
  I sum[R];
  TILEWRIGHT_UNROLL
  for (int r = 0; r < R; ++r) sum[r] = Vec::Start8(d + R + r);
  TILEWRIGHT_UNROLL
  for (int quad = 0; quad < 8; ++quad) {
    if (quad == 0) Prefetch<Block, 0, 2>(at.ahead);
    if (quad == 4) Prefetch<Block, 1, 2>(at.ahead);
    const I codes = Vec::Load(at.codes + 64 * quad);
    TILEWRIGHT_UNROLL
    for (int r = 0; r < R; ++r)
      sum[r] = Vec::Dot8(sum[r], codes, Vec::Broadcast(x + 32 * r + 4 * quad));
  }
  const F dw = Vec::LoadHalf(at.scales);
  TILEWRIGHT_UNROLL
  for (int r = 0; r < R; ++r) {
    const F scale = Vec::Mul(dw, Vec::BroadcastF(d + r));
    acc[r] = Vec::Fma(Vec::ToFloat(sum[r]), scale, acc[r]);
  }
}

/// The codes of quad line + 4 * half, of 2, 3 or 6 bits.
template <class Block>
inline __attribute__((always_inline)) I HalfCodes(const PanelCursor& at, int half, int line) {
  constexpr int kBits = PanelCodeBits(Block::kFormat);
  const int field = 2 * half + (line & 1);
  if constexpr (kBits == 6) {
    const I raw = Vec::Load(at.codes + 64 * line);
    const I high = Vec::Load(at.codes + 256 + 64 * (line >> 1));
    const I low = half == 0 ? Vec::Low4(raw) : Vec::High4(raw);
    return Vec::Join6(low, high, field);
  } else {
    const I low = Vec::Field2(Vec::Load(at.codes + 64 * (line >> 1)), field);
    if constexpr (kBits == 3)
      return Vec::JoinBit(low, Vec::Load(at.codes + 128), line + 4 * half, 2);
    return low;
  }
}

/// A block of two sub-blocks. `dw` and `m` are the factors of the file's block around the block.
template <class Block, int R>
inline __attribute__((always_inline)) void TwoSubBlocks(const PanelCursor& at, F dw, F m,
                                                        const std::uint8_t* x, F (&acc)[R]) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr bool kHasMin = kFormat.min != Factor::kNone;
  constexpr int kParts = PanelCodeBits(kFormat) == 6 ? 2 : 1;
  const auto* d = reinterpret_cast<const float*>(x + 32 * R);
  F first[R];
  TILEWRIGHT_UNROLL
  for (int r = 0; r < R; ++r) first[r] = Vec::ZeroF();
  TILEWRIGHT_UNROLL
  for (int half = 0; half < 2; ++half) {
    if (half == 0) Prefetch<Block, 0, kParts>(at.ahead);
    if (kParts == 2 && half == 1) Prefetch<Block, 1, 2>(at.ahead);
    const float* correction = d + R + half * R;
    I sum[R];
    TILEWRIGHT_UNROLL
    for (int r = 0; r < R; ++r) sum[r] = kHasMin ? Vec::Zero() : StartAt<Block>(correction + r);
    TILEWRIGHT_UNROLL
    for (int line = 0; line < 4; ++line)
      DotQuad<Block, R>(sum, HalfCodes<Block>(at, half, line), x, line + 4 * half);
    // d * scale is exact in f32: 11 bits by 8.
    const std::uint8_t* integers = at.scales + kPanelColumns * half;
    const F scale = Vec::Mul(
        dw, kFormat.PairsIntegers() ? Vec::LoadLowNibbles(integers) : Vec::LoadInt8(integers));
    if constexpr (kHasMin) {
      const F mw =
          Vec::Mul(m, kFormat.PairsIntegers() ? Vec::LoadHighNibbles(integers)
                                              : Vec::LoadInt8(integers + 2 * kPanelColumns));
      TILEWRIGHT_UNROLL
      for (int r = 0; r < R; ++r) acc[r] = Vec::Fma(mw, Vec::BroadcastF(correction + r), acc[r]);
    }
    TILEWRIGHT_UNROLL
    for (int r = 0; r < R; ++r) {
      const F value = Vec::ToFloat(SumOf<Block>(sum[r], correction + r));
      if (half == 0) {
        first[r] = Vec::Mul(value, scale);
      } else {
        acc[r] = Vec::Fma(Vec::Fma(value, scale, first[r]), Vec::BroadcastF(d + r), acc[r]);
      }
    }
  }
}

/// A block of any format.
template <class Block, int R>
inline __attribute__((always_inline)) void MultiplyBlock(const PanelCursor& at, F d, F m,
                                                         const std::uint8_t* x, F (&acc)[R]) {
  if constexpr (PanelCodeBits(Block::kFormat) == 8) {
    Codes8<Block, R>(at, x, acc);
  } else if constexpr (Block::kFormat.sub_block < kBlock) {
    TwoSubBlocks<Block, R>(at, d, m, x, acc);
  } else {
    OneSubBlock<Block, R>(at, d, m, x, acc);
  }
}

}  // namespace
}  // namespace tilewright::gemm_int8
