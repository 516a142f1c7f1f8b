#pragma once

#include "device/cuda/kernels/nibble_table.cuh"
#include "ops/gemm/cuda/gemv/gemv_more_codes.cuh"
#include "ops/gemm/cuda/gemv/int8_codes.cuh"

// Int8Codes of formats with fifth and third bits in bytes of their own, of two bits, and of tables.

namespace tw {

/// The codes of 32 values: nibbles, low ones before high ones, and fifth bits in their order.
TW_DEVICE void JoinFifthBits(const u32* nibbles, u32 fifth, u32 (&codes)[8]) {
  TW_UNROLL
  for (int i = 0; i < 4; ++i) {
    codes[i] = AndOr(nibbles[i], kLowNibbles, SpreadToFifth(fifth >> (4 * i)));
    codes[4 + i] = AndOr(nibbles[i] >> 4, kLowNibbles, SpreadToFifth(fifth >> (16 + 4 * i)));
  }
}

/// Sums of products of as many words, exactly.
template <int kWords>
TW_DEVICE int DotUnsigned(const u32* codes, const u32* x, int c) {
  TW_UNROLL
  for (int i = 0; i < kWords; ++i) c = DotUnsigned4(codes[i], x[i], c);
  return c;
}
template <int kWords>
TW_DEVICE int DotSigned(const u32* codes, const u32* x, int c) {
  TW_UNROLL
  for (int i = 0; i < kWords; ++i) c = DotSigned4(codes[i], x[i], c);
  return c;
}

template <>
struct Int8Codes<Type::kQ5_0> {
  static constexpr int kBlock = 32, kBytes = 22, kChunk = 32;
  struct Chunk {
    u32 codes[8];
    float d;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b, 0}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const int at = skip + kBytes * c;
    u32 words[5];
    LoadEvenWords(row, at + 2, words);
    Chunk chunk;
    JoinFifthBits(words + 1, words[0], chunk.codes);
    chunk.d = LowF16ToF32(Load16Bits(row + at));
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[8], const float (&scales)[1][2],
                             float acc) {
    // A value is d * (code - 16).
    const float sum =
        Fma(-16.0f, scales[0][1], FloatOfSum(DotUnsigned<8>(chunk.codes, x, kSumBits)));
    return Fma(Product(chunk.d, scales[0][0]), sum, acc);
  }
};

template <>
struct Int8Codes<Type::kQ5_1> {
  static constexpr int kBlock = 32, kBytes = 24, kChunk = 32;
  struct Chunk {
    u32 codes[8];
    float d, min;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b, 0}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const u8* p = row + (skip + kBytes * c);
    const u32 head = LoadWord(p);
    u32 words[5];
    TW_UNROLL
    for (int i = 0; i < 5; ++i) words[i] = LoadWord(p + (4 + 4 * i));
    Chunk chunk;
    JoinFifthBits(words + 1, words[0], chunk.codes);
    chunk.d = LowF16ToF32(head);
    chunk.min = HighF16ToF32(head);
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[8], const float (&scales)[1][2],
                             float acc) {
    const float sum = FloatOfSum(DotUnsigned<8>(chunk.codes, x, kSumBits));
    const float offset = Product(chunk.min, scales[0][1]);
    return Fma(scales[0][0], Fma(chunk.d, sum, offset), acc);
  }
};

/// Sub-blocks 2 j and 2 j + 1, as of q4_k.
template <>
struct Int8Codes<Type::kQ5_K> {
  static constexpr int kBlock = 256, kBytes = 176, kChunk = 64;
  struct Chunk {
    u32 codes[16];
    float scale[2], min[2];
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 2, b % 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int, int c) {
    const u8* block = row + kBytes * (c / 4);
    const int j = c % 4;
    const U32x4 head = *reinterpret_cast<const U32x4*>(block);
    const PairFactors factors = PairFactors::At(head, j);
    Chunk chunk;
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      chunk.scale[h] = Product(factors.d, factors.scale[h]);
      chunk.min[h] = Product(factors.dmin, factors.min[h]);
      const U32x4 nibbles = *reinterpret_cast<const U32x4*>(block + (48 + 32 * j + 16 * h));
      const U32x4 fifth = *reinterpret_cast<const U32x4*>(block + (16 + 16 * h));
      TW_UNROLL
      for (int i = 0; i < 4; ++i) {
        const u32 bits = fifth.v[i] >> (2 * j);  // of the two sub-blocks in bits 0 and 1
        chunk.codes[4 * h + i] = AndOr(bits << 4, 0x10101010u, nibbles.v[i] & kLowNibbles);
        chunk.codes[8 + 4 * h + i] = AndOr(bits << 3, 0x10101010u, nibbles.v[i] >> 4 & kLowNibbles);
      }
    }
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float sum = FloatOfSum(DotUnsigned<8>(chunk.codes + 8 * h, x + 8 * h, kSumBits));
      const float offset = Product(chunk.min[h], scales[h][1]);
      acc = Fma(scales[h][0], Fma(chunk.scale[h], sum, -offset), acc);
    }
    return acc;
  }
};

/// Runs 2 p and 2 p + 1 of a half of the block, whose codes are in the same 32 bytes.
template <>
struct Int8Codes<Type::kQ2_K> {
  static constexpr int kBlock = 256, kBytes = 84, kChunk = 64;
  struct Chunk {
    u32 codes[16];
    u32 factors;  // a byte for each 16 values: scale and, above it, minimum
    float d, dmin;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 2, b % 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const u8* block = row + (skip + kBytes * (c / 4));
    const int half = c / 2 % 2, p = c % 2;
    Chunk chunk;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const u32 bits = LoadWord(block + (16 + 32 * half + 4 * i)) >> (4 * p);
      chunk.codes[i] = bits & 0x03030303u;
      chunk.codes[8 + i] = bits >> 2 & 0x03030303u;
    }
    chunk.factors = LoadWord(block + (8 * half + 4 * p));
    const u32 tail = LoadWord(block + 80);
    chunk.d = LowF16ToF32(tail);
    chunk.dmin = HighF16ToF32(tail);
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      int sum = 0, offset = 0;
      TW_UNROLL
      for (int run = 0; run < 2; ++run) {
        const int at = 8 * h + 4 * run;
        const u32 factor = chunk.factors >> (16 * h + 8 * run);
        int of_x = 0;
        TW_UNROLL
        for (int i = 0; i < 4; ++i) of_x = DotUnsigned4(0x01010101u, x[at + i], of_x);
        sum += static_cast<int>(factor & 15u) * DotUnsigned<4>(chunk.codes + at, x + at, 0);
        offset += static_cast<int>(factor >> 4 & 15u) * of_x;
      }
      const float less = Product(chunk.dmin, static_cast<float>(offset));
      acc = Fma(scales[h][0], Fma(chunk.d, static_cast<float>(sum), -less), acc);
    }
    return acc;
  }
};

/// As q2_k, with third bits in bytes of their own; a code less 4 is a signed byte.
template <>
struct Int8Codes<Type::kQ3_K> {
  static constexpr int kBlock = 256, kBytes = 110, kChunk = 64;
  struct Chunk {
    u32 codes[16];
    u32 scales;  // a byte for each 16 values, 32 too much
    float d;
  };
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b / 2, b % 2}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const int block = skip + kBytes * (c / 4), half = c / 2 % 2, p = c % 2;
    u32 low[8], third[8], tail[2];
    LoadEvenWords(row, block, third);
    LoadEvenWords(row, block + 32 + 32 * half, low);
    Chunk chunk;
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      const u32 bits = low[i] >> (4 * p), absent = ~third[i] >> (4 * half + 2 * p);
      // Less 4 where there is no third bit.
      chunk.codes[i] = AndOr(bits, 0x03030303u, (absent & 0x01010101u) * 0xfcu);
      chunk.codes[8 + i] = AndOr(bits >> 2, 0x03030303u, (absent >> 1 & 0x01010101u) * 0xfcu);
    }
    LoadEvenWords(row, block + 104, tail);  // the high bits of all scales, and d
    u32 nibbles[1];
    LoadEvenWords(row, block + 96 + 4 * p, nibbles);
    chunk.scales = AndOr(nibbles[0] >> (4 * half), kLowNibbles,
                         (tail[0] >> (4 * half + 2 * p) & 0x03030303u) << 4);
    chunk.d = LowF16ToF32(tail[1]);
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[16], const float (&scales)[2][2],
                             float acc) {
    TW_UNROLL
    for (int h = 0; h < 2; ++h) {
      int sum = 0;
      TW_UNROLL
      for (int run = 0; run < 2; ++run) {
        const int at = 8 * h + 4 * run;
        const int scale = static_cast<int>(chunk.scales >> (16 * h + 8 * run) & 63u) - 32;
        sum += scale * DotSigned<4>(chunk.codes + at, x + at, 0);
      }
      acc = Fma(Product(chunk.d, scales[h][0]), static_cast<float>(sum), acc);
    }
    return acc;
  }
};

/// Signed bytes from a table, and what they are multiplied with.
struct TableChunk {
  u32 values[8];
  float d;
  TW_DEVICE void LookUp(const NibbleTable& table, const u32* nibbles) {
    TW_UNROLL
    for (int i = 0; i < 4; ++i) LookUpNibbles(table, nibbles[i], values[i], values[4 + i]);
  }
  TW_DEVICE float Add(const u32 (&x)[8], const float (&scales)[1][2], float acc) const {
    return Fma(Product(d, scales[0][0]), FloatOfSum(DotSigned<8>(values, x, kSumBits)), acc);
  }
};

template <>
struct Int8Codes<Type::kIQ4_NL> {
  static constexpr int kBlock = 32, kBytes = 18, kChunk = 32;
  using Chunk = TableChunk;
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b, 0}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const auto block = EvenBlock<4>::At(row, skip + kBytes * c);
    Chunk chunk;
    chunk.LookUp(kNonLinearTable, block.words);
    chunk.d = block.d;
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[8], const float (&scales)[1][2],
                             float acc) {
    return chunk.Add(x, scales, acc);
  }
};

template <>
struct Int8Codes<Type::kIQ4_XS> {
  static constexpr int kBlock = 256, kBytes = 136, kChunk = 32;
  using Chunk = TableChunk;
  TW_DEVICE static Int8Place PlaceOf(int b) { return {b, 0}; }
  TW_DEVICE static Chunk Load(const u8* row, int skip, int c) {
    const u8* block = row + (skip + kBytes * (c / 8));
    const int s = c % 8;
    const u32 head = LoadWord(block), low = LoadWord(block + 4) >> (4 * s) & 15u;
    u32 nibbles[4];
    TW_UNROLL
    for (int i = 0; i < 4; ++i) nibbles[i] = LoadWord(block + (8 + 16 * s + 4 * i));
    Chunk chunk;
    chunk.LookUp(kNonLinearTable, nibbles);
    const u32 scale = low | (head >> (16 + 2 * s) & 3u) << 4;
    chunk.d = Product(LowF16ToF32(head), static_cast<float>(static_cast<int>(scale) - 32));
    return chunk;
  }
  TW_DEVICE static float Add(const Chunk& chunk, const u32 (&x)[8], const float (&scales)[1][2],
                             float acc) {
    return chunk.Add(x, scales, acc);
  }
};

}  // namespace tw
