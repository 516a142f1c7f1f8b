#pragma once

#include <cstdint>

#include "tilewright/result.h"
#include "tilewright/types.h"

namespace tilewright {

/// The GGUF block formats byte by byte. `d` and `m` are f16 bit patterns, little endian; blocks
/// have no alignment. In q4_0 and q4_1 byte j holds value j in its low nibble and value j + 16 in
/// its high nibble.

inline constexpr int kBlock32 = 32;    ///< values in a block of q4_0, q4_1, q8_0
inline constexpr int kBlock256 = 256;  ///< values in a block of q6_k

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

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ6_K) == 210);

/// Values of `n` consecutive elements of any DataType. f32 results are exact for every code of
/// every GGUF format except q4_1, which rounds once, in the addition of m (so every order of
/// operations, fused or not, gives the same bits). f64 results are exact for all. kInvalidArgument
/// if n is not a multiple of the block, kUnsupported for kNone. Scalar: this is the reference that
/// kernels are checked against. `source` needs no alignment. Thread-safe.
Status DecodeRow(DataType type, const void* source, std::int64_t n, float* out);
Status DecodeRow(DataType type, const void* source, std::int64_t n, double* out);

/// Encodes `n` finite values: f64, f32, f16, bf16, f8_e4m3 (saturating) round to nearest even; q4_0
/// takes d = max / -8 where max is the value of largest magnitude with its sign; q4_1 d = (max -
/// min) / 15, m = min; q8_0 d = max|x| / 127, codes to nearest even; q6_k searches the scale of
/// each 16 values for the least squared error. Non-finite values in a block give an unspecified
/// block. Errors as DecodeRow; integer types are kUnsupported.
Status EncodeRow(DataType type, const float* source, std::int64_t n, void* out);

}  // namespace tilewright
