#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// How one lane of a warp reads and decodes its part of a block of weights. Weights<type> has
//   kBlock        values of a block
//   kBytes        bytes of a block
//   kLanes        lanes that share a block; `part` is 0 .. kLanes - 1
//   kQuads        groups of four adjacent values that a lane takes, kLanes * kQuads * 4 == kBlock
//   QuadOffset(part, i)     place of quad i in the block
//   Load<Memory>(block, part) -> Raw      what is read from memory
//   Prepare(raw, part) -> Scales          what quads share
//   Decode(raw, scales, i, w)             the four values of quad i, as f32
// and values equal those of DecodeRow bit for bit (core/block_format.h has the formats): codes
// become f32 exactly, and one fused multiply-add rounds. The file compiles on the host too, where a
// test holds it to that. Memory reads 2, 4, 8 or 16 aligned bytes.

namespace tw {

/// 2^23 as bits: a small integer or-ed into the low bits of it is added to it.
inline constexpr u32 kMagicBits = 0x4b000000u;
inline constexpr float kMagic = 8388608.0f;

/// Nibble at bit kBit (a multiple of 4) of `word`, exactly. No conversion instruction: those run at
/// a fraction of the rate of the fma.
template <int kBit>
TW_DEVICE float NibbleToF32(u32 word) {
  // A nibble may sit in mantissa bits 0 .. 19; its place is divided away.
  constexpr int kShift = kBit < 20 ? 0 : 16;
  constexpr int kPlace = kBit - kShift;
  constexpr float kInverse = 1.0f / static_cast<float>(1 << kPlace);
  const float value = FloatOf((word >> kShift & (0xfu << kPlace)) | kMagicBits);
  return Fma(value, kInverse, -kMagic * kInverse);
}

/// Byte `i` of `word` minus `bias`, exactly.
TW_DEVICE float ByteToF32(u32 word, int i, int bias) {
#if defined(__CUDACC__)
  const u32 bits = __byte_perm(word, kMagicBits, 0x7440u | static_cast<u32>(i));
#else
  const u32 bits = (word >> (8 * i) & 0xffu) | kMagicBits;
#endif
  return FloatOf(bits) - (kMagic + static_cast<float>(bias));
}

/// kCount words from an address that is a multiple of two: aligned words, shifted. Reads those
/// bytes and no others.
template <class Memory, int kCount>
TW_DEVICE void LoadWords(const u8* p, u32 (&out)[kCount]) {
  const bool odd = (reinterpret_cast<u64>(p) & 2u) != 0;
  const u8* aligned = odd ? p - 2 : p;
  u32 words[kCount + 1];
  words[0] = odd ? Memory::Load2(p) << 16 : Memory::Load4(p);
  TW_UNROLL
  for (int i = 1; i < kCount; ++i) words[i] = Memory::Load4(aligned + 4 * i);
  words[kCount] = odd ? Memory::Load2(aligned + 4 * kCount) : 0u;
  TW_UNROLL
  for (int i = 0; i < kCount; ++i) out[i] = FunnelRight(words[i], words[i + 1], odd ? 16u : 0u);
}

/// Quads of the low (kHigh = 0) or high nibbles of a word, times scale plus offset.
template <int kHigh>
TW_DEVICE void DecodeNibbles(u32 word, float scale, float offset, float (&w)[4]) {
  w[0] = Fma(NibbleToF32<4 * kHigh>(word), scale, offset);
  w[1] = Fma(NibbleToF32<8 + 4 * kHigh>(word), scale, offset);
  w[2] = Fma(NibbleToF32<16 + 4 * kHigh>(word), scale, offset);
  w[3] = Fma(NibbleToF32<24 + 4 * kHigh>(word), scale, offset);
}

template <Type kType>
struct Weights;

/// bf16 and f16 as blocks of the eight values of a 16-byte load.
template <Type kType>
struct PlainWeights {
  static constexpr int kBlock = 8, kBytes = 16, kLanes = 1, kQuads = 2;
  struct Raw {
    u32 v[4];
  };
  struct Scales {};
  TW_DEVICE static int QuadOffset(int, int i) { return 4 * i; }
  template <class Memory>
  TW_DEVICE static Raw Load(const u8* block, int) {
    const auto r = Memory::Load16(block);
    return Raw{{r.v[0], r.v[1], r.v[2], r.v[3]}};
  }
  TW_DEVICE static Scales Prepare(const Raw&, int) { return {}; }
  TW_DEVICE static void Decode(const Raw& raw, const Scales&, int i, float (&w)[4]) {
    w[0] = LowToF32<kType>(raw.v[2 * i]);
    w[1] = HighToF32<kType>(raw.v[2 * i]);
    w[2] = LowToF32<kType>(raw.v[2 * i + 1]);
    w[3] = HighToF32<kType>(raw.v[2 * i + 1]);
  }
};
template <>
struct Weights<Type::kBF16> : PlainWeights<Type::kBF16> {};
template <>
struct Weights<Type::kF16> : PlainWeights<Type::kF16> {};

/// d, dmin; 12 bytes of scales; codes. Part p has bytes 8p .. 8p + 7 of the codes: their low
/// nibbles are values 64 j + 8 (p % 4) on, j = p / 4, of sub-block 2 j, and the high nibbles the
/// same place of sub-block 2 j + 1.
template <>
struct Weights<Type::kQ4_K> {
  static constexpr int kBlock = 256, kBytes = 144, kLanes = 16, kQuads = 4;
  struct Raw {
    u32 head[4];  // d and dmin, bytes 0-3, 4-7 and 8-11 of the scales
    u32 q[2];
  };
  struct Scales {
    float scale[2], offset[2];  // of the low and of the high nibbles
  };
  TW_DEVICE static int QuadOffset(int part, int i) {
    return 64 * (part / 4) + 8 * (part % 4) + 32 * (i / 2) + 4 * (i % 2);
  }
  template <class Memory>
  TW_DEVICE static Raw Load(const u8* block, int part) {
    const auto head = Memory::Load16(block);
    const auto q = Memory::Load8(block + 16 + 8 * part);
    return Raw{{head.v[0], head.v[1], head.v[2], head.v[3]}, {q.v[0], q.v[1]}};
  }
  TW_DEVICE static Scales Prepare(const Raw& raw, int part) {
    // Two bytes, one for each of the sub-blocks 2 j and 2 j + 1, in the low half of each word.
    const u32 shift = part / 4 % 2 != 0 ? 16u : 0u;
    const u32 a = raw.head[1] >> shift, b = raw.head[2] >> shift, c = raw.head[3] >> shift;
    const bool upper = part >= 8;  // sub-blocks 4 .. 7: nibbles of c below two bits of a and b
    const u32 scales = upper ? (c & 0x0f0fu) | (a >> 2 & 0x3030u) : a & 0x3f3fu;
    const u32 mins = upper ? (c >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u) : b & 0x3f3fu;
    const float d = LowF16ToF32(raw.head[0]), dmin = HighF16ToF32(raw.head[0]);
    return Scales{{d * ByteToF32(scales, 0, 0), d * ByteToF32(scales, 1, 0)},
                  {-dmin * ByteToF32(mins, 0, 0), -dmin * ByteToF32(mins, 1, 0)}};
  }
  TW_DEVICE static void Decode(const Raw& raw, const Scales& s, int i, float (&w)[4]) {
    if (i < 2) {
      DecodeNibbles<0>(raw.q[i % 2], s.scale[0], s.offset[0], w);
    } else {
      DecodeNibbles<1>(raw.q[i % 2], s.scale[1], s.offset[1], w);
    }
  }
};

/// 32 values of four bits: low nibbles are values 0 .. 15, high ones 16 .. 31; two lanes a block.
struct NibbleBlock32 {
  static constexpr int kBlock = 32, kLanes = 2, kQuads = 4;
  struct Scales {
    float scale, offset;
  };
  TW_DEVICE static int QuadOffset(int part, int i) { return 8 * part + 16 * (i / 2) + 4 * (i % 2); }
  template <class Raw>
  TW_DEVICE static void Decode(const Raw& raw, const Scales& s, int i, float (&w)[4]) {
    if (i < 2) {
      DecodeNibbles<0>(raw.q[i % 2], s.scale, s.offset, w);
    } else {
      DecodeNibbles<1>(raw.q[i % 2], s.scale, s.offset, w);
    }
  }
};

template <>
struct Weights<Type::kQ4_0> : NibbleBlock32 {
  static constexpr int kBytes = 18;
  struct Raw {
    u32 q[2];
    u32 d;
  };
  template <class Memory>
  TW_DEVICE static Raw Load(const u8* block, int part) {
    Raw raw;
    LoadWords<Memory>(block + 2 + 8 * part, raw.q);
    raw.d = Memory::Load2(block);
    return raw;
  }
  TW_DEVICE static Scales Prepare(const Raw& raw, int) {
    const float d = LowF16ToF32(raw.d);
    return {d, -8.0f * d};
  }
};

template <>
struct Weights<Type::kQ4_1> : NibbleBlock32 {
  static constexpr int kBytes = 20;
  struct Raw {
    u32 q[2];
    u32 head;  // d and m
  };
  template <class Memory>
  TW_DEVICE static Raw Load(const u8* block, int part) {
    const u8* q = block + 4 + 8 * part;
    return Raw{{Memory::Load4(q), Memory::Load4(q + 4)}, Memory::Load4(block)};
  }
  TW_DEVICE static Scales Prepare(const Raw& raw, int) {
    return {LowF16ToF32(raw.head), HighF16ToF32(raw.head)};
  }
};

template <>
struct Weights<Type::kQ8_0> {
  static constexpr int kBlock = 32, kBytes = 34, kLanes = 2, kQuads = 4;
  struct Raw {
    u32 q[4];
    u32 d;
  };
  struct Scales {
    float scale;
  };
  TW_DEVICE static int QuadOffset(int part, int i) { return 16 * part + 4 * i; }
  template <class Memory>
  TW_DEVICE static Raw Load(const u8* block, int part) {
    Raw raw;
    LoadWords<Memory>(block + 2 + 16 * part, raw.q);
    raw.d = Memory::Load2(block);
    return raw;
  }
  TW_DEVICE static Scales Prepare(const Raw& raw, int) { return {LowF16ToF32(raw.d)}; }
  TW_DEVICE static void Decode(const Raw& raw, const Scales& s, int i, float (&w)[4]) {
    const u32 biased = raw.q[i] ^ 0x80808080u;  // signed code + 128
    TW_UNROLL
    for (int j = 0; j < 4; ++j) w[j] = ByteToF32(biased, j, 128) * s.scale;
  }
};

/// Two halves of 128 values. Part p has, in half h = p / 8, the values l .. l + 3, l = 4 (p % 8),
/// of each of the four runs of 32.
template <>
struct Weights<Type::kQ6_K> {
  static constexpr int kBlock = 256, kBytes = 210, kLanes = 16, kQuads = 4;
  struct Raw {
    u32 low[2];     // low nibbles of runs 0 and 2, and of 1 and 3
    u32 high[1];    // two bits of each run
    u32 scales[2];  // of this half
    u32 d;
  };
  struct Scales {
    float scale[4];
  };
  TW_DEVICE static int QuadOffset(int part, int i) {
    return 128 * (part / 8) + 32 * i + 4 * (part % 8);
  }
  template <class Memory>
  TW_DEVICE static Raw Load(const u8* block, int part) {
    const int half = part / 8, l = 4 * (part % 8);
    Raw raw;
    u32 word[1];
    LoadWords<Memory>(block + 64 * half + l, word);
    raw.low[0] = word[0];
    LoadWords<Memory>(block + 64 * half + 32 + l, word);
    raw.low[1] = word[0];
    LoadWords<Memory>(block + 128 + 32 * half + l, raw.high);
    LoadWords<Memory>(block + 192 + 8 * half, raw.scales);
    raw.d = Memory::Load2(block + 208);
    return raw;
  }
  TW_DEVICE static Scales Prepare(const Raw& raw, int part) {
    const float d = LowF16ToF32(raw.d);
    // Run s has scales 2 s (values 0 .. 15) and 2 s + 1: bytes 0 and 2 of each word, then, below.
    const u32 shift = part % 8 >= 4 ? 8u : 0u;
    const u32 a = (raw.scales[0] ^ 0x80808080u) >> shift,
              b = (raw.scales[1] ^ 0x80808080u) >> shift;
    return Scales{{d * ByteToF32(a, 0, 128), d * ByteToF32(a, 2, 128), d * ByteToF32(b, 0, 128),
                   d * ByteToF32(b, 2, 128)}};
  }
  TW_DEVICE static void Decode(const Raw& raw, const Scales& s, int i, float (&w)[4]) {
    const u32 codes = (raw.low[i % 2] >> (4 * (i / 2)) & 0x0f0f0f0fu) |
                      (raw.high[0] >> (2 * i) & 0x03030303u) << 4;
    TW_UNROLL
    for (int j = 0; j < 4; ++j) w[j] = ByteToF32(codes, j, 32) * s.scale[i];
  }
};

}  // namespace tw
