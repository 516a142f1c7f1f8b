#pragma once

#include <cstdint>

#include "tilewright/result.h"
#include "tilewright/types.h"

namespace tilewright {

/// The GGUF block formats byte by byte. `d` and `m` are f16 bit patterns, little endian; blocks
/// have no alignment. In q4_0 and q4_1 byte j holds value j in its low nibble and value j + 16 in
/// its high nibble.

inline constexpr int kBlock32 = 32;    ///< values in a block of q4_0, q4_1, q8_0
inline constexpr int kBlock256 = 256;  ///< values in a block of q6_k and q4_k

struct BlockQ4_0 {
  std::uint16_t d;
  std::uint8_t qs[16];
} __attribute__((packed));

struct BlockQ4_1 {
  std::uint16_t d;
  std::uint16_t m;
  std::uint8_t qs[16];
} __attribute__((packed));

struct BlockQ8_0 {
  std::uint16_t d;
  std::int8_t qs[32];
} __attribute__((packed));

/// Two halves of 128 values. In half h, value l + 32 * s (l < 32, s < 4) takes its low four bits
/// from byte ql[64 * h + 32 * (s & 1) + l] (low nibble for s < 2, high nibble else), its high two
/// bits from bits 2 s, 2 s + 1 of qh[32 * h + l], its scale from scales[8 * h + 2 * s + l / 16];
/// value = d * scale * (q - 32).
struct BlockQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
} __attribute__((packed));

/// Eight sub-blocks of 32 values, each with a 6-bit scale and a 6-bit min. Sub-block s < 4: scale
/// in the low six bits of scales[s], min in those of scales[s + 4]. s >= 4: the low four bits of
/// the scale are the low nibble of scales[s + 4] and those of the min its high nibble; their high
/// two bits are the high two bits of scales[s - 4] (scale) and scales[s] (min). Value 64 * j + l +
/// 32 * h (j < 4, h < 2, l < 32) belongs to sub-block 2 * j + h and takes its code from byte qs[32
/// * j + l], the low nibble for h = 0; value = d * scale * q - dmin * min.
struct BlockQ4_K {
  std::uint16_t d;
  std::uint16_t dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];
} __attribute__((packed));

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ6_K) == 210 && sizeof(BlockQ4_K) == 144);

/// Values of `n` consecutive elements of any DataType. f32 results are exact for every code of
/// every GGUF format except q4_1 and q4_k, which round once, in the last addition (so every order
/// of operations, fused or not, gives the same bits). f64 results are exact for all.
/// kInvalidArgument if n is not a multiple of the block, kUnsupported for kNone. Scalar: this is
/// the reference that kernels are checked against. `source` needs no alignment. Thread-safe.
Status DecodeRow(DataType type, const void* source, std::int64_t n, float* out);
Status DecodeRow(DataType type, const void* source, std::int64_t n, double* out);

/// Encodes `n` finite values: f64, f32, f16, bf16, f8_e4m3 (saturating) round to nearest even; q4_0
/// takes d = max / -8 where max is the value of largest magnitude with its sign; q4_1 d = (max -
/// min) / 15, m = min; q8_0 d = max|x| / 127, codes to nearest even; q6_k searches the scale of
/// each 16 values for the least squared error; q4_k takes scale (max - min) / 15 and min = min(0,
/// smallest) of each 32, without a search. Non-finite values in a block give an unspecified
/// block. Errors as DecodeRow; integer types are kUnsupported.
Status EncodeRow(DataType type, const float* source, std::int64_t n, void* out);

}  // namespace tilewright
