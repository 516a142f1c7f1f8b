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
//                      scales[h] of 32 of them the factor and the sum of the bytes
// Sums of 32 (q6_k: 16) products are exact integers; each is multiplied with the scales in f32. The
// file compiles on the host too.

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

/// Words from an even address; up to four bytes behind them are read.
template <int kWords>
TW_DEVICE void LoadEvenWords(const u8* row, int at, u32 (&words)[kWords]) {
  const u8* p = row + (at & ~3);
  const u32 select = (at & 2) != 0 ? 0x5432u : 0x3210u;
  u32 low = LoadWord(p);
  TW_UNROLL
  for (int i = 0; i < kWords; ++i) {
    const u32 high = LoadWord(p + (4 + 4 * i));
    words[i] = PermuteBytes(low, high, select);
    low = high;
  }
}

template <Type kType>
struct Int8Codes;

template <>
struct Int8Codes<Type::kQ8_0> {
  static constexpr int kBlock = 32, kBytes = 34, kChunk = 32;
  using Chunk = EvenBlock<8>;
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b, 0}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    return Chunk::At(row, skip + kBytes * c);
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[8], const float (&scales)[1][2],
                             float acc) {
    int sum = kSumBits;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) sum = DotSigned4(chunk.words[i], x[i], sum);
    return Fma(Product(chunk.d, scales[0][0]), FloatOfSum(sum), acc);
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

/// Sub-blocks 2 j and 2 j + 1, whose codes are the low and the high nibbles of the same 32 bytes.
template <>
struct Int8Codes<Type::kQ4_K> {
  static constexpr int kBlock = 256, kBytes = 144, kChunk = 64;
  struct Chunk {
    u32 words[8];
    float scale[2], min[2];  // the high nibbles' scale by 16 less
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 2, b % 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int, int c) {
    const u8* block = row + kBytes * (c / 4);
    const int j = c % 4;
    const U32x4 head = *reinterpret_cast<const U32x4*>(block);
    // Six bits in each byte: of sub-blocks 0 .. 3 in the lower half of the block, of 4 .. 7 in the
    // upper one (core/formats/six_bit_factors.h).
    const bool upper = j >= 2;
    const u32 scales = upper ? (head.v[3] & 0x0f0f0f0fu) | (head.v[1] >> 2 & 0x30303030u)
                             : head.v[1] & 0x3f3f3f3fu;
    const u32 mins = upper ? (head.v[3] >> 4 & 0x0f0f0f0fu) | (head.v[2] >> 2 & 0x30303030u)
                           : head.v[2] & 0x3f3f3f3fu;
    const float d = LowF16ToF32(head.v[0]), dmin = HighF16ToF32(head.v[0]);
    Chunk chunk;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 byte = static_cast<u32>(2 * (j % 2) + h);
      chunk.scale[h] = Product(h == 0 ? d : d * 0.0625f, BytePlusMagic(scales, byte) - 8388608.0f);
      chunk.min[h] = Product(dmin, BytePlusMagic(mins, byte) - 8388608.0f);
      const U32x4 codes = *reinterpret_cast<const U32x4*>(block + (16 + 32 * j + 16 * h));
      TW_UNROLL
      for (int i = 0; i < 4; ++i) chunk.words[4 * h + i] = codes.v[i];
    }
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u32 mask = h == 0 ? kLowNibbles : kHighNibbles;
      const float sum = FloatOfSum(DotNibbles(chunk.words, mask, x + 8 * h, kSumBits));
      const float offset = Product(chunk.min[h], scales[h][1]);
      acc = Fma(scales[h][0], Fma(chunk.scale[h], sum, -offset), acc);
    }
    return acc;
  }
};

/// Runs p and p + 2 of a half of the block, whose low bits are the low and the high nibbles of the
/// same 32 bytes. The six bits of a code are the upper ones of a byte, with their highest inverted:
/// four times the code less 32.
template <>
struct Int8Codes<Type::kQ6_K> {
  static constexpr int kBlock = 256, kBytes = 210, kChunk = 64;
  struct Chunk {
    u32 words[16];
    int scale[4];
    float d;  // a fourth of it
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 4 * 2 + b % 2, b % 4 / 2}; }
  TW_DEVICE static int SignedByte(u32 pair, int i) {
    return static_cast<i8>(static_cast<u8>(pair >> (8 * i)));
  }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const int block = skip + kBytes * (c / 4), half = c / 2 % 2, p = c % 2;
    u32 low[8], high[8];
    LoadEvenWords(row, block + 64 * half + 32 * p, low);
    LoadEvenWords(row, block + 128 + 32 * half, high);
    Chunk chunk;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const u32 bits = high[i] >> (2 * p);  // of runs p and p + 2 in bits 0, 1 and 4, 5
      chunk.words[i] = AndOr(low[i] << 2, 0x3c3c3c3cu, (bits << 6 & 0xc0c0c0c0u) ^ 0x80808080u);
      chunk.words[8 + i] = AndOr(low[i] >> 2, 0x3c3c3c3cu, (bits << 2 & 0xc0c0c0c0u) ^ 0x80808080u);
    }
    const u8* scales = row + (block + 192 + 8 * half + 2 * p);
    const u32 first = Load16Bits(scales), second = Load16Bits(scales + 4);
    TW_UNROLL
    for (int i = 0; i < 2; ++i) {
      chunk.scale[i] = SignedByte(first, i);
      chunk.scale[2 + i] = SignedByte(second, i);
    }
    chunk.d = LowF16ToF32(Load16Bits(row + (block + 208))) * 0.25f;
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      int sum = 0;
      TW_UNROLL
      for (int run = 0; run < 2; ++run) {
        int products = 0;
        TW_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int at = 8 * h + 4 * run + i;
          products = DotSigned4(chunk.words[at], x[at], products);
        }
        sum += chunk.scale[2 * h + run] * products;
      }
      acc = Fma(Product(chunk.d, scales[h][0]), static_cast<float>(sum), acc);
    }
    return acc;
  }
};

}  // namespace tw
