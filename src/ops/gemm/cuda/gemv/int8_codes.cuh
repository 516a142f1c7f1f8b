#pragma once

#include "device/cuda/kernels/int8.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "ops/gemm/cuda/gemv/gemv_codes.cuh"

// Weights in GGUF blocks (core/formats/) times activations that were rounded to int8. A lane takes a
// chunk: 32 values of a row, or the 64 whose codes share bytes. Int8Codes<type> has
//   kBlock, kBytes     values and bytes of a block
//   kChunk             values of a chunk, 32 or 64
//   PlaceOf(b)         where the 32 values b of a row lie: which chunk, and which half of it
//   Chunk, Load(row, skip, c)   chunk c behind byte `skip` of a segment of a row in shared memory
//   Add(chunk, x, scales, acc)  acc plus the products: x are the chunk's bytes in its order,
//                      scales[h] of 32 of them the factor and the sum of the bytes, or (kSumsOf16)
//                      as the bits of a float the two sums of 16, low half before high one
// Sums of 32 (with scales of 16 values: 16) products are exact integers; each is multiplied with the
// scales in f32, those of 16 values as integers. A format of BlockCodes (block_codes.cuh) with one
// scale for 32 values has it from there; one of its own here takes fewer instructions. The file
// compiles on the host too.

namespace tw {

struct Int8Place {
  int chunk, half;
};

/// Eight words of codes and of x, sums begun at `c`.
template <int kWords>
TW_DEVICE int DotNibbles(const u32 (&words)[kWords], u32 mask, const u32* x, int c) {
  TW_UNROLL
  for (int i = 0; i < kWords; ++i) c = DotUnsigned4(words[i] & mask, x[i], c);
  return c;
}
inline constexpr u32 kLowNibbles = 0x0f0f0f0fu, kHighNibbles = 0xf0f0f0f0u;

/// The codes of 32 values, low nibbles before high ones, times x.
TW_DEVICE float SumOfNibbles(const u32 (&words)[4], const u32 (&x)[8]) {
  // Sums of high nibbles are multiples of 16.
  return FloatOfSum(DotNibbles(words, kLowNibbles, x, kSumBits) +
                    (DotNibbles(words, kHighNibbles, x + 4, 0) >> 4));
}

/// A scale of 16 bits and words of codes, from an even address.
template <int kWords>
struct EvenBlock {
  u32 words[kWords];
  float d;
  TW_DEVICE static EvenBlock At(const u8* row, int at) {
    EvenBlock block;
    const bool odd = (at & 2) != 0;
    const u8* p = row + (at & ~3);
    u32 low = LoadWord(p);
    block.d = LowF16ToF32(odd ? low >> 16 : low);
    TW_UNROLL
    for (int i = 0; i < kWords; ++i) {
      const u32 high = LoadWord(p + (4 + 4 * i));
      block.words[i] = PermuteBytes(low, high, odd ? 0x7654u : 0x5432u);
      low = high;
    }
    return block;
  }
};

template <Type kType, bool kOfBlockCodes = kHasBlockCodes<kType>>
struct Int8Codes;

/// Of BlockCodes: signed bytes.
template <Type kType>
struct Int8Codes<kType, true> {
  using Format = BlockCodes<kType>;
  static constexpr int kBlock = Format::kBlock, kBytes = Format::kBytes, kChunk = 32;
  static constexpr int kSubBlocks = kBlock / 32;
  static_assert(Format::kScales == 1, "scales of 16 values are integers here");
  struct Chunk {
    u32 words[8];
    CodeScale scale;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b, 0}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const auto block = RowOf<RowMultiple(kBytes)>::T::At(row, skip + kBytes * (c / kSubBlocks));
    const int s = c % kSubBlocks;
    Chunk chunk;
    TW_UNROLL
    for (int t = 0; t < 4; ++t) {
      u32 words[2];
      Format::Pair(block, 0, s, t, words);
      chunk.words[t] = words[0];
      chunk.words[4 + t] = words[1];
    }
    chunk.scale = Format::ScaleOf(block, 0, s, 0);
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[8], const float (&scales)[1][2],
                             float acc) {
    int bits = kSumBits;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) bits = DotSigned4(chunk.words[i], x[i], bits);
    float sum = FloatOfSum(bits);
    if constexpr (Format::kZero != 0)
      sum = Fma(-static_cast<float>(Format::kZero), scales[0][1], sum);
    if constexpr (!Format::kHasOffset)
      return Fma(Product(chunk.scale.scale, scales[0][0]), sum, acc);
    const float offset = Product(chunk.scale.offset, scales[0][1]);
    return Fma(scales[0][0], Fma(chunk.scale.scale, sum, offset), acc);
  }
};

/// Formats with a table, whose low nibbles are values 0 .. 15 of 32 and whose high ones are 16 .. 31.
/// x lies as the nibbles do: values 4 t, 16 + 4 t, 4 t + 1, 16 + 4 t + 1 and the four behind them.
template <Type kType>
struct LookUpCodes {
  using Format = BlockCodes<kType>;
  using Table = typename Format::Table;
  static constexpr int kBlock = Format::kBlock, kBytes = Format::kBytes, kChunk = 32;
  static constexpr int kSubBlocks = kBlock / 32;
  static constexpr bool kInterleaved = true;
  struct Chunk {
    u32 words[4];
    float scale;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b, 0}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const auto block = RowOf<RowMultiple(kBytes)>::T::At(row, skip + kBytes * (c / kSubBlocks));
    const int s = c % kSubBlocks;
    Chunk chunk;
    TW_UNROLL
    for (int t = 0; t < 4; ++t) chunk.words[t] = Format::Nibbles(block, 0, s, t);
    chunk.scale = Format::ScaleOf(block, 0, s, 0).scale;
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[8], const float (&scales)[1][2],
                             float acc) {
    int sum = kSumBits;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      // A permutation by a code of the other half of the table gives the sign of a byte: a value is
      // the sum of both, which costs less than to pick one of them.
      const u32 codes = chunk.words[i / 2], others = codes ^ 0x88888888u;
      const u32 low = PermuteSignedBytes(Table::kSumA, Table::kSumB, codes >> (i % 2 * 16));
      const u32 high = PermuteSignedBytes(Table::kSumC, Table::kSumD, others >> (i % 2 * 16));
      sum = DotSigned4(high, x[i], DotSigned4(low, x[i], sum));
    }
    return Fma(Product(chunk.scale, scales[0][0]), FloatOfSum(sum), acc);
  }
};
template <>
struct Int8Codes<Type::kIQ4_NL> : LookUpCodes<Type::kIQ4_NL> {};
template <>
struct Int8Codes<Type::kIQ4_XS> : LookUpCodes<Type::kIQ4_XS> {};
template <>
struct Int8Codes<Type::kMXFP4> : LookUpCodes<Type::kMXFP4> {};

/// Whether x lies interleaved.
template <class F, class = void>
inline constexpr bool kInterleavesX = false;
template <class F>
inline constexpr bool kInterleavesX<F, typename MakeVoid<decltype(F::kInterleaved)>::T> = true;

/// Whether a format asks for the sums of 16 bytes of x.
template <class F, class = void>
inline constexpr bool kHasSumsOf16 = false;
template <class F>
inline constexpr bool kHasSumsOf16<F, typename MakeVoid<decltype(F::kSumsOf16)>::T> = true;

/// Two blocks, whose 17 words lanes read side by side without a bank conflict. Of one block, nine
/// words each, half of the lanes would meet the other half.
template <>
struct Int8Codes<Type::kQ8_0> {
  static constexpr int kBlock = 32, kBytes = 34, kChunk = 64;
  struct Chunk {
    u32 words[16];
    float d[2];
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 2, b % 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const int at = skip + 2 * kBytes * c;
    const bool odd = (at & 2) != 0;  // the first scale is the upper half of a word
    const u8* p = row + (at & ~3);
    const u32 select[2] = {odd ? 0x7654u : 0x5432u, odd ? 0x5432u : 0x3210u};
    Chunk chunk;
    u32 low = LoadWord(p);
    chunk.d[0] = odd ? HighF16ToF32(low) : LowF16ToF32(low);
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const u32 high = LoadWord(p + (4 + 4 * i));
      chunk.words[i] = PermuteBytes(low, high, select[0]);
      low = high;
    }
    const u32 middle = low;
    low = LoadWord(p + 36);
    chunk.d[1] = odd ? LowF16ToF32(low) : HighF16ToF32(middle);
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      // Without a shift the word behind the chunk is not asked for.
      const u32 high = i < 7 || odd ? LoadWord(p + (40 + 4 * i)) : 0;
      chunk.words[8 + i] = PermuteBytes(low, high, select[1]);
      low = high;
    }
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      int sum = kSumBits;
      TW_UNROLL
      for (int i = 8 * h; i < 8 * h + 8; ++i) sum = DotSigned4(chunk.words[i], x[i], sum);
      acc = Fma(Product(chunk.d[h], scales[h][0]), FloatOfSum(sum), acc);
    }
    return acc;
  }
};

template <>
struct Int8Codes<Type::kQ4_0> {
  static constexpr int kBlock = 32, kBytes = 18, kChunk = 32;
  using Chunk = EvenBlock<4>;
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b, 0}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    return Chunk::At(row, skip + kBytes * c);
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[8], const float (&scales)[1][2],
                             float acc) {
    // A value is d * (code - 8).
    const float sum = Fma(-8.0f, scales[0][1], SumOfNibbles(chunk.words, x));
    return Fma(Product(chunk.d, scales[0][0]), sum, acc);
  }
};

template <>
struct Int8Codes<Type::kQ4_1> {
  static constexpr int kBlock = 32, kBytes = 20, kChunk = 32;
  struct Chunk {
    u32 words[4];
    float d, min;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b, 0}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const u8* p = row + (skip + kBytes * c);
    const u32 head = LoadWord(p);
    Chunk chunk;
    chunk.d = LowF16ToF32(head);
    chunk.min = HighF16ToF32(head);
    TW_UNROLL
    for (int i = 0; i < 4; ++i) chunk.words[i] = LoadWord(p + (4 + 4 * i));
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[8], const float (&scales)[1][2],
                             float acc) {
    const float offset = Product(chunk.min, scales[0][1]);
    return Fma(scales[0][0], Fma(chunk.d, SumOfNibbles(chunk.words, x), offset), acc);
  }
};

/// The scales and minima of sub-blocks 2 j and 2 j + 1 of q4_k and q5_k; the scale of the second by
/// 16 less, for sums of high nibbles.
struct PairFactors {
  float scale[2], min[2];
  /// `head`: the first 16 bytes of a block.
  TW_DEVICE static PairFactors Of(const U32x4& head, int j) {
    // Six bits in each byte: of sub-blocks 0 .. 3 in the lower half of the block, of 4 .. 7 in the
    // upper one (core/formats/six_bit_factors.h).
    const bool upper = j >= 2;
    const u32 scales = upper ? (head.v[3] & 0x0f0f0f0fu) | (head.v[1] >> 2 & 0x30303030u)
                             : head.v[1] & 0x3f3f3f3fu;
    const u32 mins = upper ? (head.v[3] >> 4 & 0x0f0f0f0fu) | (head.v[2] >> 2 & 0x30303030u)
                           : head.v[2] & 0x3f3f3f3fu;
    const float d = LowF16ToF32(head.v[0]), dmin = HighF16ToF32(head.v[0]);
    PairFactors factors;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 byte = static_cast<u32>(2 * (j % 2) + h);
      factors.scale[h] =
          Product(h == 0 ? d : d * 0.0625f, BytePlusMagic(scales, byte) - 8388608.0f);
      factors.min[h] = Product(dmin, BytePlusMagic(mins, byte) - 8388608.0f);
    }
    return factors;
  }
  /// acc plus what sub-block h gives; `sum`: of its products, by 16 more for the second.
  TW_DEVICE float Add(int h, float sum, const float (&x_scale)[2], float acc) const {
    const float offset = Product(min[h], x_scale[1]);
    return Fma(x_scale[0], Fma(scale[h], sum, -offset), acc);
  }
};
/// Eight words at a multiple of 16 bytes.
TW_DEVICE void LoadEightWords(const u8* p, u32 (&words)[8]) {
  TW_UNROLL
  for (int h = 0; h < 2; ++h) {
    const U32x4 four = *reinterpret_cast<const U32x4*>(p + 16 * h);
    TW_UNROLL
    for (int i = 0; i < 4; ++i) words[4 * h + i] = four.v[i];
  }
}

/// Sub-blocks 2 j and 2 j + 1, whose codes are the low and the high nibbles of the same 32 bytes.
template <>
struct Int8Codes<Type::kQ4_K> {
  static constexpr int kBlock = 256, kBytes = 144, kChunk = 64;
  struct Chunk {
    u32 words[8];
    PairFactors factors;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 2, b % 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int, int c) {
    const u8* block = row + kBytes * (c / 4);
    const int j = c % 4;
    Chunk chunk;
    chunk.factors = PairFactors::Of(*reinterpret_cast<const U32x4*>(block), j);
    LoadEightWords(block + (16 + 32 * j), chunk.words);
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 mask = h == 0 ? kLowNibbles : kHighNibbles;
      const float sum = FloatOfSum(DotNibbles(chunk.words, mask, x + 8 * h, kSumBits));
      acc = chunk.factors.Add(h, sum, scales[h], acc);
    }
    return acc;
  }
};

/// The same, with bit 4 of the codes as bits 4 and 5 of the bytes of `high`.
template <>
struct Int8Codes<Type::kQ5_K> {
  static constexpr int kBlock = 256, kBytes = 176, kChunk = 64;
  struct Chunk {
    u32 words[8], high[8];
    PairFactors factors;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 2, b % 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int, int c) {
    const u8* block = row + kBytes * (c / 4);
    const int j = c % 4;
    Chunk chunk;
    chunk.factors = PairFactors::Of(*reinterpret_cast<const U32x4*>(block), j);
    LoadEightWords(block + (48 + 32 * j), chunk.words);
    LoadEightWords(block + 16, chunk.high);
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      // Bits 2 j and 2 j + 1; other bits cross from byte to byte.
      const u32 turn = static_cast<u32>(2 * j + 28) % 32;
      chunk.high[i] = FunnelRight(chunk.high[i], chunk.high[i], turn);
    }
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    int low = kSumBits, fifth = 0;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      low =
          DotUnsigned4(AndOr(chunk.high[i], 0x10101010u, chunk.words[i] & kLowNibbles), x[i], low);
      fifth = DotUnsigned4(chunk.high[i] & 0x20202020u, x[8 + i], fifth);
    }
    acc = chunk.factors.Add(0, FloatOfSum(low), scales[0], acc);
    // Sixteen times a code is its high nibble and 256 times its fifth bit, of which 32 are summed.
    const int high = DotNibbles(chunk.words, kHighNibbles, x + 8, kSumBits) + 8 * fifth;
    return chunk.factors.Add(1, FloatOfSum(high), scales[1], acc);
  }
};

/// A factor of eight bits times the first or second sum of 16 bytes of x.
TW_DEVICE int TimesSumOf16(int factor, const float (&x_scale)[2], int i) {
  return DotTwo(BitsOf(x_scale[1]), (static_cast<u32>(factor) & 255u) << (8 * i), 0);
}
TW_DEVICE int ByteAt(u32 word, int i) { return static_cast<int>(word >> (8 * i) & 255u); }
TW_DEVICE int SignedByteAt(u32 word, int i) {
  return static_cast<int>(PermuteSignedBytes(word, 0, 0x8880u + 0x1111u * static_cast<u32>(i)));
}

/// Sub-blocks 2 p and 2 p + 1 of a half of the block, whose codes are bits 0, 1 and 2, 3 of the bytes
/// of `words`. The scales and minima of 16 values are multiplied as integers.
template <>
struct Int8Codes<Type::kQ2_K> {
  static constexpr int kBlock = 256, kBytes = 84, kChunk = 64;
  static constexpr bool kSumsOf16 = true;
  struct Chunk {
    u32 words[8];
    u32 factors;  // nibbles: scale and minimum of each 16 values
    float d, dmin;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 2, b % 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const u8* block = row + (skip + kBytes * (c / 4));
    const int half = c % 4 / 2, p = c % 2;
    Chunk chunk;
    chunk.factors = LoadWord(block + (8 * half + 4 * p));
    TW_UNROLL
    for (int i = 0; i < 8; ++i)
      chunk.words[i] = LoadWord(block + (16 + 32 * half + 4 * i)) >> 4 * p;
    const u32 head = LoadWord(block + 80);
    chunk.d = LowF16ToF32(head);
    chunk.dmin = HighF16ToF32(head);
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    const u32 steps = chunk.factors & kLowNibbles, mins = chunk.factors >> 4 & kLowNibbles;
    TW_UNROLL
    for (int j = 0; j < 2; ++j) {
      int sum = kSumBits;
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        int products = 0;
        TW_UNROLL
        for (int i = 0; i < 4; ++i) {
          const u32 codes = chunk.words[4 * h + i] & (j == 0 ? 0x03030303u : 0x0c0c0c0cu);
          products = DotUnsigned4(codes, x[8 * j + 4 * h + i], products);
        }
        sum += ByteAt(steps, 2 * j + h) * products;
      }
      // Codes of the second sub-block are four times as large.
      const float step = j == 0 ? chunk.d : chunk.d * 0.25f;
      const int offset = DotTwo(BitsOf(scales[j][1]), mins >> (16 * j), kSumBits);
      const float least = Product(chunk.dmin, FloatOfSum(offset));
      acc = Fma(scales[j][0], Fma(step, FloatOfSum(sum), -least), acc);
    }
    return acc;
  }
};

/// The same bits of `words`, and those above them in bits 2 and 3 of the bytes of `third`. The scales
/// of 16 values are multiplied as integers.
template <>
struct Int8Codes<Type::kQ3_K> {
  static constexpr int kBlock = 256, kBytes = 110, kChunk = 64;
  static constexpr bool kSumsOf16 = true;
  struct Chunk {
    u32 words[8], third[8];
    u32 scales;  // of each 16 values
    float d;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 2, b % 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const EvenRow block = EvenRow::At(row, skip + kBytes * (c / 4));
    const int half = c % 4 / 2, p = c % 2;
    // Bits 4 half + 2 p and the next one; other bits cross from byte to byte.
    const u32 turn = static_cast<u32>(4 * half + 2 * p + 30) % 32;
    Chunk chunk;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      chunk.words[i] = block.Word<32>(32 * half + 4 * i, 4 * static_cast<u32>(p));
      const u32 third = block.Word<0>(4 * i);
      chunk.third[i] = FunnelRight(third, third, turn);
    }
    const u32 scales = AndOr(block.Word<104>(0) >> (4 * half + 2 * p) << 4, 0x30303030u,
                             block.Word<96>(4 * p) >> (4 * half) & kLowNibbles);
    chunk.scales = LessZero<32>(scales);
    chunk.d = LowF16ToF32(block.Half(108));
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    TW_UNROLL
    for (int j = 0; j < 2; ++j) {
      int sum = kSumBits;
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        // A value is a code less 4; codes of the second sub-block are four times as large.
        int products = TimesSumOf16(j == 0 ? -4 : -16, scales[j], h);
        TW_UNROLL
        for (int i = 0; i < 4; ++i) {
          const u32 low = chunk.words[4 * h + i], third = chunk.third[4 * h + i];
          const u32 codes = j == 0 ? AndOr(third, 0x04040404u, low & 0x03030303u)
                                   : AndOr(third << 1, 0x10101010u, low & 0x0c0c0c0cu);
          products = DotUnsigned4(codes, x[8 * j + 4 * h + i], products);
        }
        sum += SignedByteAt(chunk.scales, 2 * j + h) * products;
      }
      const float step = j == 0 ? chunk.d : chunk.d * 0.25f;
      acc = Fma(Product(step, scales[j][0]), FloatOfSum(sum), acc);
    }
    return acc;
  }
};

/// Runs p and p + 2 of a half of the block, whose low bits are the low and the high nibbles of the
/// same 32 bytes. The scales of 16 values are multiplied as integers.
template <>
struct Int8Codes<Type::kQ6_K> {
  static constexpr int kBlock = 256, kBytes = 210, kChunk = 64;
  static constexpr bool kSumsOf16 = true;
  struct Chunk {
    u32 words[16];
    int scale[4];
    float d;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 4 * 2 + b % 2, b % 4 / 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const EvenRow block = EvenRow::At(row, skip + kBytes * (c >> 2));
    const int half = c >> 1 & 1, p = c & 1;
    Chunk chunk;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      // Words are shifted as they are put together; bits that cross from byte to byte are masked.
      const int low = 64 * half + 32 * p + 4 * i;
      u32 high = block.Word<128>(32 * half + 4 * i, 2 * static_cast<u32>(p)) & 0x33333333u;
      KeepValue(high);  // masked once for both runs
      chunk.words[i] = SelectBits(kLowNibbles, block.Word<0>(low), high << 4);
      chunk.words[8 + i] = SelectBits(kLowNibbles, block.Word<0>(low, 4), high);
    }
    const u8* scales = block.data + (192 + 8 * half + 2 * p);
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 pair = Load16Bits(scales + 4 * h);
      TW_UNROLL
      for (int run = 0; run < 2; ++run) chunk.scale[2 * h + run] = SignedByteAt(pair, run);
    }
    chunk.d = LowF16ToF32(block.Half(208));
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      int sum = 0;
      TW_UNROLL
      for (int run = 0; run < 2; ++run) {
        const int from = 8 * h + 4 * run;
        int products = TimesSumOf16(-32, scales[h], run);  // a value is a code less 32
        TW_UNROLL
        for (int i = from; i < from + 4; ++i)
          products = DotUnsigned4(chunk.words[i], x[i], products);
        sum += chunk.scale[2 * h + run] * products;
      }
      acc = Fma(Product(chunk.d, scales[h][0]), static_cast<float>(sum), acc);
    }
    return acc;
  }
};

}  // namespace tw
