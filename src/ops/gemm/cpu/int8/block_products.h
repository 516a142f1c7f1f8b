#pragma once

#include "ops/gemm/cpu/int8/layout.h"

/// A block of 32 k of L vectors of columns times R rows, for each width of code: the innermost part
/// of micro_kernel.h, written as that over the kernel file's vector type `Vec`.

/// Loops over rows and quads must unroll, or the accumulators live in memory. The scalar file has
/// nothing to gain and says so.
#ifndef TILEWRIGHT_UNROLL
#define TILEWRIGHT_UNROLL _Pragma("GCC unroll 16")
#endif

namespace tilewright::gemm_int8 {
namespace {

using F = Vec::F;
using I = Vec::I;

/// A block that the prefetch has come to. Codes and factors lie apart in a panel and are read side
/// by side, so each has its place.
struct BlockAhead {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* factors = nullptr;
  int left = 0;  ///< blocks of its panel from this one on
};

/// Where a block is read from: its first vector of columns; and what to prefetch meanwhile. `kAbreast`: of the first
/// of Vec::kAbreast panels that are read side by side.
template <bool kAbreast>
struct PanelCursor {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  BlockAhead near;  ///< into the L1; not side by side
  BlockAhead far;   ///< into the L2
  std::size_t panel_bytes = 0;

  /// The same block of the g-th panel beside this one, without what to fetch into the L1.
  inline __attribute__((always_inline)) PanelCursor Beside(int g) const {
    if (g == 0) return *this;
    const std::size_t to = static_cast<std::size_t>(g) * panel_bytes;
    return {codes + to, scales + to, {}, {far.codes + to, far.factors + to, far.left}, panel_bytes};
  }
};

/// From what the first of several vectors of columns has somewhere to what vector l has, where those of one panel
/// are `step` bytes apart. Where a vector is a whole panel, the others are those of the panels beside it.
template <bool kAbreast>
inline __attribute__((always_inline)) std::size_t ToVector(const PanelCursor<kAbreast>& at, int l,
                                                           int step) {
  return static_cast<std::size_t>(l) *
         (Vec::kColumns == kPanelColumns ? at.panel_bytes : static_cast<std::size_t>(step));
}

/// Bytes from the factors of a vector of columns to those of the next, in one panel.
template <class Block>
constexpr int kScaleStep = Vec::kColumns*(Block::kFormat.scale == Factor::kF16TimesInt
                                              ? 1
                                              : Block::kFormat.scale_bytes());

/// Blocks that the software prefetch runs ahead of the arithmetic, into the L1. It crosses from panel to
/// panel, and beyond the last one: prefetches never fault.
///
/// A core may have more lines on their way to its L2 than to its L1, so all are fetched into the L2
/// further ahead, and into the L1 from there. One row by 4096 x 14336 from memory on two threads of a Xeon
/// (Sapphire Rapids), us with 40 blocks ahead into the L1 alone and so: q4_k 1,374 and 1,212, q5_k 1,860
/// and 1,555, q6_k 1,961 and 1,642, q8_0 2,273 and 2,147, mxfp4 1,336 and 1,168, q2_k 846 and 822; 8 to 32
/// KiB and 10 to 30 blocks are alike. Eight sequences of Llama-3.2-1B's shape on two cores of a Zen 4, tokens
/// a second: q4_0 218 to 236 and 257 to 260, q8_0 150 to 156 and 201 to 243; prompts of 512 are alike or up to
/// 6 % faster.
constexpr int kBlocksNear = 20;
/// 16 KiB beyond what goes to the L1.
template <class Block>
constexpr int kBlocksFar = kBlocksNear +
                           (16 << 10) / (CodeBytes(Block::kFormat) + FactorBytes(Block::kFormat));

/// Whether the L1 is asked for blocks at all. One or two rows of bytes, of which there is nothing to
/// unpack, are faster without: q8_0 as above 2,110 us, else 2,380; with four rows 2,510 and 2,310.
template <class Block, int R>
constexpr bool kFetchesNear = R > 2 || PanelCodeBits(Block::kFormat) < 8;

/// Whether one row is multiplied by panels side by side: so many streams keep more lines on their way from
/// memory than one. One thread of a Zen 4, from memory, 16384 x 2048 and 2048 x 8192, us, one panel at a time and
/// side by side: q4_0 858 and 752, 394 and 304; q4_k 969 and 814, 419 and 354; q6_k 1,266 and 1,147, 612 and 537;
/// q8_0 1,692 and 1,319, 785 and 569. Where unpacking is what takes the time, it is slower: q2_k 392 and 1,098,
/// q3_k 531 and 876, mxfp4 641 and 913. Two by AVX2, Llama-3.2-1B's shape in q4_0 on one and two threads of a Zen 3,
/// tokens a second, one panel at a time and side by side: medians 12.5 and 15.2, 22.9 and 24.0, best 14.0 and 18.3,
/// 25.8 and 31.7; four: 13.5 and 22.0, best 18.2 and 25.9. SmolLM2, whose panels have 18 blocks, is alike.
template <class Block>
constexpr bool kGainsAbreast = Vec::kAbreast > 1 && PanelCodeBits(Block::kFormat) > 3 &&
                               (Block::kFormat.scale != Factor::kPowerOfTwo);

/// How many blocks ahead they are fetched, into the L2. Of four panels bytes are faster as the processor fetches them
/// itself (q8_0 as above, none, 4, 8 and 16 blocks ahead: 1,319, 1,394, 1,446, 1,465; q4_0: 830, 752, 825, 790), of the
/// two by AVX2 they are not (16384 x 2048 of q8_0, one thread of a Zen 5: none 1,935 us, 4 blocks ahead 1,168).
constexpr int kBlocksAbreast = 4;

/// The block `distance` blocks beyond the first one of `panel`.
template <class Block>
BlockAhead StartAhead(const std::uint8_t* panel, int blocks, std::size_t panel_bytes,
                      int distance) {
  const int block = distance % blocks;
  panel += static_cast<std::size_t>(distance / blocks) * panel_bytes;
  return {panel + block * CodeBytes(Block::kFormat),
          panel + blocks * CodeBytes(Block::kFormat) + block * FactorBytes(Block::kFormat),
          blocks - block};
}

/// Moves to the next block, across the end of a panel.
template <class Block>
inline __attribute__((always_inline)) void Step(BlockAhead& at, int blocks,
                                                std::size_t panel_bytes) {
  at.codes += CodeBytes(Block::kFormat);
  at.factors += FactorBytes(Block::kFormat);
  if (--at.left > 0) return;
  at.left = blocks;
  at.codes += panel_bytes - static_cast<std::size_t>(blocks * CodeBytes(Block::kFormat));
  at.factors += panel_bytes - static_cast<std::size_t>(blocks * FactorBytes(Block::kFormat));
}

/// Prefetches part `kPart` of `kParts` of what a block of panels takes, codes and then factors.
/// Blocks of more than five lines do it in two parts: bursts of four or five lines stream fastest
/// (q8_0, one core, GB/s: nine at once 22, five and four 27, one by one 14, seventeen every other
/// block 17).
template <class Block, int kPart, int kParts, int L, int R, bool kAbreast>
inline __attribute__((always_inline)) void Prefetch(const PanelCursor<kAbreast>& at) {
  constexpr int kOfCodes = CodeBytes(Block::kFormat) / 64;
  constexpr int kLines = kOfCodes + (FactorBytes(Block::kFormat) + 63) / 64;
  constexpr int kEach = (kLines + kParts - 1) / kParts;
  constexpr int kFirst = kPart * kEach, kEnd = kFirst + kEach < kLines ? kFirst + kEach : kLines;
  const auto place = [](const BlockAhead& ahead, int line) {
    return line < kOfCodes ? ahead.codes + 64 * line : ahead.factors + 64 * (line - kOfCodes);
  };
  if constexpr (kAbreast) {
    if (PanelCodeBits(Block::kFormat) == 8 && Vec::kAbreast > 2) return;
    constexpr int kPanels = Vec::kColumns == kPanelColumns ? L : 1;
    TILEWRIGHT_UNROLL
    for (int l = 0; l < kPanels; ++l) {
      TILEWRIGHT_UNROLL
      for (int line = kFirst; line < kEnd; ++line)
        __builtin_prefetch(place(at.far, line) + ToVector(at, l, 0), 0, 2);
    }
    return;
  }
  TILEWRIGHT_UNROLL
  for (int line = kFirst; line < kEnd; ++line) {
    if constexpr (kFetchesNear<Block, R>) __builtin_prefetch(place(at.near, line), 0, 3);
    __builtin_prefetch(place(at.far, line), 0, 2);
  }
}

/// Quads of one column whose products an instruction set without VNNI sums in int16, two at a time:
/// unsigned codes times activations from -127 to 127. With 0 not even those of one quad fit.
template <class Block>
constexpr int kQuadsInWords = 32767 / (2 * 127 * LargestCode(Block::kFormat));

/// Whether what is multiplied are signed values, which need no correction.
template <class Block>
constexpr bool kSigned = Vec::kWords&& kQuadsInWords<Block> == 0;

/// Sums of products of L vectors of columns by R rows, over a block or a sub-block. (`V` is a
/// parameter so that `if constexpr` discards.)
template <class Block, int L, int R, class V = Vec>
struct Sums {
  I total[L][R];
  I words[L][R];  ///< what is not yet in `total`, in int16

  /// From `correction`, the int32 of row 0, or from zero with a minimum.
  inline __attribute__((always_inline)) void Start(const float* correction) {
    constexpr bool kZero = Block::kFormat.min != Factor::kNone || kSigned<Block>;
    TILEWRIGHT_UNROLL
    for (int r = 0; r < R; ++r) {
      const I start = kZero ? Vec::Zero() : Vec::Broadcast(correction + r);
      TILEWRIGHT_UNROLL
      for (int l = 0; l < L; ++l) total[l][r] = start;
    }
  }

  /// Adds the products of a quad, the `step`-th of `steps`; `x`: its activations of row 0.
  inline __attribute__((always_inline)) void Add(const I (&codes)[L], const std::uint8_t* x,
                                                 int step, int steps) {
    TILEWRIGHT_UNROLL
    for (int r = 0; r < R; ++r) {
      if constexpr (!V::kWords && L == 1) {
        total[0][r] = V::DotBroadcast(total[0][r], codes[0], x + kBlock * r);
        continue;
      }
      const I q = V::Broadcast(x + kBlock * r);
      TILEWRIGHT_UNROLL
      for (int l = 0; l < L; ++l) {
        I& sum = total[l][r];
        if constexpr (!V::kWords) {
          sum = V::Dot(sum, codes[l], q);
        } else if constexpr (kSigned<Block>) {
          sum = V::AddWidened(sum, V::SignedProducts(codes[l], q));
        } else {
          constexpr int kQuads = kQuadsInWords<Block>;
          const I products = V::Products(codes[l], q);
          words[l][r] = step % kQuads == 0 ? products : V::AddWords(words[l][r], products);
          if (step % kQuads == kQuads - 1 || step == steps - 1)
            sum = V::AddWidened(sum, words[l][r]);
        }
      }
    }
  }
};

/// The line of codes at `offset` of each of L vectors.
template <int L, bool kAbreast>
inline __attribute__((always_inline)) void LoadLine(const PanelCursor<kAbreast>& at, int offset,
                                                    I (&raw)[L]) {
  TILEWRIGHT_UNROLL
  for (int l = 0; l < L; ++l)
    raw[l] = Vec::Load(at.codes + offset + ToVector(at, l, 4 * Vec::kColumns));
}

/// What is multiplied for the nibbles of a quad; `top` is the line of fifth bits.
template <class Block>
inline __attribute__((always_inline)) I WholeCodes(I nibbles, I top, int quad) {
  constexpr BlockFormat kFormat = Block::kFormat;
  if constexpr (kFormat.has_table) {
    static constexpr CodeTable kTable = TableOf(kFormat, kSigned<Block> ? 0 : ZeroOf(kFormat));
    return Vec::Lookup(kTable.value, nibbles);
  } else if constexpr (PanelCodeBits(kFormat) == 5) {
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

/// The codes of a block that is one sub-block, of 4 or 5 bits or bytes.
template <class Block, int L, int R, bool kAbreast>
inline __attribute__((always_inline)) void SumBlock(const PanelCursor<kAbreast>& at,
                                                    const std::uint8_t* x,
                                                    Sums<Block, L, R>& sums) {
  constexpr int kBits = PanelCodeBits(Block::kFormat);
  constexpr int kParts = kBits > 4 ? 2 : 1;
  I raw[L], codes[L], top[L] = {};
  if constexpr (kBits == 5) LoadLine(at, 256, top);
  TILEWRIGHT_UNROLL
  for (int line = 0; line < (kBits == 8 ? 8 : 4); ++line) {
    if (line == 0) Prefetch<Block, 0, kParts, L, R>(at);
    if (kParts == 2 && line == (kBits == 8 ? 4 : 2)) Prefetch<Block, 1, 2, L, R>(at);
    LoadLine(at, 64 * line, raw);
    if constexpr (kBits == 8) {
      TILEWRIGHT_UNROLL
      for (int l = 0; l < L; ++l) codes[l] = Vec::CodesOfBytes(raw[l]);
      sums.Add(codes, x + 4 * line, line, 8);
    } else {
      TILEWRIGHT_UNROLL
      for (int l = 0; l < L; ++l) codes[l] = WholeCodes<Block>(Vec::Low4(raw[l]), top[l], line);
      sums.Add(codes, x + 4 * line, 2 * line, 8);
      TILEWRIGHT_UNROLL
      for (int l = 0; l < L; ++l)
        codes[l] = WholeCodes<Block>(Vec::High4(raw[l]), top[l], line + 4);
      sums.Add(codes, x + 4 * (line + 4), 2 * line + 1, 8);
    }
  }
}

/// A block that is one sub-block. `d` and `m`: factors of the file's block around the block, where
/// its sub-blocks have integers.
template <class Block, int L, int R, bool kAbreast>
inline __attribute__((always_inline)) void OneSubBlock(const PanelCursor<kAbreast>& at,
                                                       const F (&d)[L], const F (&m)[L],
                                                       const std::uint8_t* x, F (&acc)[L][R]) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr bool kHasMin = kFormat.min != Factor::kNone;
  constexpr bool kIntegers = kFormat.scale == Factor::kF16TimesInt;
  const auto* dx = reinterpret_cast<const float*>(x + kBlock * R);
  const auto* correction = dx + R;
  Sums<Block, L, R> sums;
  sums.Start(correction);
  SumBlock(at, x, sums);
  TILEWRIGHT_UNROLL
  for (int l = 0; l < L; ++l) {
    const std::uint8_t* scales = at.scales + ToVector(at, l, kScaleStep<Block>);
    // Scale times integer is exact in f32: 11 bits by 8.
    const F dw = kIntegers ? Vec::Mul(d[l], Vec::LoadInt8(scales)) : LoadScales<Block>(scales);
    F mw = Vec::ZeroF();
    if constexpr (kHasMin) {
      mw = kIntegers ? Vec::Mul(m[l], Vec::LoadInt8(scales + kPanelColumns))
                     : Vec::LoadHalf(scales + 2 * kPanelColumns);
    }
    TILEWRIGHT_UNROLL
    for (int r = 0; r < R; ++r) {
      const F scale = Vec::Mul(dw, Vec::BroadcastF(dx + r));
      if constexpr (kHasMin) acc[l][r] = Vec::Fma(mw, Vec::BroadcastF(correction + r), acc[l][r]);
      acc[l][r] = Vec::Fma(Vec::ToFloat(sums.total[l][r]), scale, acc[l][r]);
    }
  }
}

/// Whether the codes of the second half are multiplied where they lie, sixteen times as large: a shift
/// less for two of its quads and for two of the first half. Their sum is exact, and so is a sixteenth
/// of their scale.
template <class Block>
constexpr bool kSixteenfold = !Vec::kWords && PanelCodeBits(Block::kFormat) == 2;

/// The codes of quad line + 4 * half where kSixteenfold.
template <int L, bool kAbreast, class V = Vec>
inline __attribute__((always_inline)) void SixteenfoldCodes(const PanelCursor<kAbreast>& at,
                                                            int half, int line, I (&codes)[L]) {
  LoadLine(at, 64 * (line >> 1), codes);
  TILEWRIGHT_UNROLL
  for (int l = 0; l < L; ++l) codes[l] = V::FieldInPlace(codes[l], line & 1, half);
}

/// The codes of quad line + 4 * half, of 2, 3 or 6 bits.
template <class Block, int L, bool kAbreast>
inline __attribute__((always_inline)) void HalfCodes(const PanelCursor<kAbreast>& at, int half,
                                                     int line, I (&codes)[L]) {
  constexpr int kBits = PanelCodeBits(Block::kFormat);
  const int field = 2 * half + (line & 1);
  I raw[L], more[L];
  LoadLine(at, 64 * (kBits == 6 ? line : line >> 1), raw);
  if constexpr (kBits == 6) LoadLine(at, 256 + 64 * (line >> 1), more);
  if constexpr (kBits == 3) LoadLine(at, 128, more);
  TILEWRIGHT_UNROLL
  for (int l = 0; l < L; ++l) {
    if constexpr (kBits == 6) {
      const I low = half == 0 ? Vec::Low4(raw[l]) : Vec::High4(raw[l]);
      codes[l] = Vec::Join6(low, more[l], field);
    } else {
      codes[l] = Vec::Field2(raw[l], field);
      if constexpr (kBits == 3) codes[l] = Vec::JoinBit(codes[l], more[l], line + 4 * half, 2);
    }
  }
}

/// A block of two sub-blocks. `dw` and `m` are the factors of the file's block around the block.
template <class Block, int L, int R, bool kAbreast>
inline __attribute__((always_inline)) void TwoSubBlocks(const PanelCursor<kAbreast>& at,
                                                        const F (&dw)[L], const F (&m)[L],
                                                        const std::uint8_t* x, F (&acc)[L][R]) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr bool kHasMin = kFormat.min != Factor::kNone;
  constexpr int kParts = PanelCodeBits(kFormat) == 6 ? 2 : 1;
  const auto* d = reinterpret_cast<const float*>(x + kBlock * R);
  F first[L][R];
  TILEWRIGHT_UNROLL
  for (int half = 0; half < 2; ++half) {
    if (half == 0) Prefetch<Block, 0, kParts, L, R>(at);
    if (kParts == 2 && half == 1) Prefetch<Block, 1, 2, L, R>(at);
    const float* correction = d + R + half * R;
    Sums<Block, L, R> sums;
    sums.Start(correction);
    TILEWRIGHT_UNROLL
    for (int line = 0; line < 4; ++line) {
      I codes[L];
      if constexpr (kSixteenfold<Block>) {
        SixteenfoldCodes(at, half, line, codes);
      } else {
        HalfCodes<Block>(at, half, line, codes);
      }
      sums.Add(codes, x + 4 * (line + 4 * half), line, 4);
    }
    TILEWRIGHT_UNROLL
    for (int l = 0; l < L; ++l) {
      // d * scale is exact in f32: 11 bits by 8.
      const std::uint8_t* integers =
          at.scales + ToVector(at, l, kScaleStep<Block>) + kPanelColumns * half;
      const F each = kSixteenfold<Block> && half == 1 ? Vec::Mul(dw[l], Vec::Set(0x1p-4f)) : dw[l];
      const F scale = Vec::Mul(
          each, kFormat.PairsIntegers() ? Vec::LoadLowNibbles(integers) : Vec::LoadInt8(integers));
      F mw = Vec::ZeroF();
      if constexpr (kHasMin) {
        mw = Vec::Mul(m[l], kFormat.PairsIntegers() ? Vec::LoadHighNibbles(integers)
                                                    : Vec::LoadInt8(integers + 2 * kPanelColumns));
      }
      TILEWRIGHT_UNROLL
      for (int r = 0; r < R; ++r) {
        if constexpr (kHasMin) acc[l][r] = Vec::Fma(mw, Vec::BroadcastF(correction + r), acc[l][r]);
        const F value = Vec::ToFloat(sums.total[l][r]);
        if (half == 0) {
          first[l][r] = Vec::Mul(value, scale);
        } else {
          acc[l][r] =
              Vec::Fma(Vec::Fma(value, scale, first[l][r]), Vec::BroadcastF(d + r), acc[l][r]);
        }
      }
    }
  }
}

/// acc += a block of a panel times R rows.
template <class Block, int L, int R, bool kAbreast>
inline __attribute__((always_inline)) void MultiplyBlock(const PanelCursor<kAbreast>& at,
                                                         const F (&d)[L], const F (&m)[L],
                                                         const std::uint8_t* x, F (&acc)[L][R]) {
  if constexpr (Block::kFormat.sub_block < kBlock) {
    TwoSubBlocks<Block>(at, d, m, x, acc);
  } else {
    OneSubBlock<Block>(at, d, m, x, acc);
  }
}

}  // namespace
}  // namespace tilewright::gemm_int8
