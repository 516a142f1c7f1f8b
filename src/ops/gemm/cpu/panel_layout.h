#pragma once

#include <cstdint>

#include "core/formats/formats.h"
#include "ops/gemm/formats.h"
#include "tilewright/types.h"

namespace tilewright::gemm {

// A panel holds 16 columns of B. f32 and f16: [k][16]. bf16: [k / 2][16][2], pairs of k of a column
// side by side, k filled up to whole tiles of 32 with zeros. Block formats keep every code and
// factor, per block of k:
//   f16 scale[16] | f16 min[16] | i8 scale[sub-block][16] | i8 min[sub-block][16] | codes
// of which a format has what its factors need; a scale and a minimum of 4 bits share a byte,
// u8 scale | min << 4 [sub-block][16]; a power of two is u8 scale[16]. Codes of
//   8 bits        i8 code - 128 [k][16]
//   4 bits        u8 [pair of k][16], even k in the low nibble
//   5, 6 bits     the low four bits so, then u8 [8 or 4 k][16] with the other bits, lowest k in the
//                 lowest bits
//   2 bits        u8 [4 k][16], lowest k in the lowest bits
//   3 bits        the low two bits so, then u8 [8 k][16] with the third ones
// so that panels of most formats take exactly 16 times the bytes of a column.
constexpr int kPanelCols = 16;
// A tile spans two panels, which are also one gate/up pair of Epilogue::kGatedSilu.
constexpr int kPairCols = 2 * kPanelCols;
// k of a bf16 panel come in whole tiles of AMX.
constexpr int kBF16PanelK = 32;

// Whether a block format has panels, and so kernels that read them packed: a lookup table is for
// nibbles.
static inline constexpr bool HasPanels(const BlockFormat& format) {
  return format.has_table ? PanelCodeBits(format) == 4
                          : PanelCodeBits(format) < 8 || format.zero == 128;
}

// How many low bits of its codes lie together in a byte: all, or those below the top bits.
static inline constexpr int LowBits(const BlockFormat& format) {
  const int bits = PanelCodeBits(format);
  return bits == 8 ? 8 : bits >= 4 ? 4 : 2;
}

// Codes of which some bits lie apart: the dearest to unpack.
static inline constexpr bool HasTopBits(const BlockFormat& format) {
  return PanelCodeBits(format) != LowBits(format);
}

// Bytes of one block of one column.
static inline constexpr int PanelBlockBytes(const BlockFormat& format) {
  int factors = format.scale_bytes() + format.min_bytes();
  if (format.scale == Factor::kF16TimesInt) factors += format.sub_blocks();
  if (format.min == Factor::kF16TimesInt && !format.PairsIntegers()) factors += format.sub_blocks();
  return factors + format.elements * PanelCodeBits(format) / 8;
}

// The values of four bits whose low LowBits are a code, minus the format's zero.
struct LowCodes {
  alignas(64) float value[16];
};
static inline constexpr LowCodes LowCodesOf(const BlockFormat& format) {
  LowCodes codes = {};
  for (int i = 0; i < 16; ++i) {
    const int code = i & ((1 << LowBits(format)) - 1);
    codes.value[i] =
        static_cast<float>(format.has_table ? format.values[code] : code - format.zero);
  }
  return codes;
}

static inline std::int64_t PanelBytes(DataType type, std::int64_t k) {
  const BlockFormat* format = FindFormat(type);
  if (type == DataType::kBF16) k = (k + kBF16PanelK - 1) / kBF16PanelK * kBF16PanelK;
  if (format == nullptr) return k * BlockBytes(type) * kPanelCols;
  return k / format->elements * PanelBlockBytes(*format) * kPanelCols;
}

// Order of the tables in PanelOps: f32, f16, bf16, then the list of formats.
constexpr int kPanelFormatCount = 3 + kFormatCount;
static inline constexpr int PanelFormatIndex(DataType type) {
  const int format = static_cast<int>(type) - kFirstFormat;
  return format >= 0 ? 3 + format : static_cast<int>(type) - static_cast<int>(DataType::kF32);
}
static_assert(PanelFormatIndex(DataType::kF16) == 1 && PanelFormatIndex(DataType::kBF16) == 2);

// Consecutive k of one sum of activations, for formats that add a minimum.
static inline constexpr int SumLength(DataType type) {
  const BlockFormat* format = FindFormat(type);
  return format != nullptr && format->min != Factor::kNone ? format->sub_block : 32;
}

struct GemvArgs {
  const std::uint8_t* panel;
  int k;
  const float* a;  // [rows][lda]
  std::int64_t lda;
  const float* sums;  // [rows][ld_sums]: sums of SumLength a; read for formats with a minimum
  std::int64_t ld_sums;
  float* out;  // [rows][kPairCols], the first 16 of each written
  int ahead;  // of plain weights, bytes ahead of the arithmetic that are fetched into the L2; 0: the processor alone does
  std::int64_t panel_bytes;  // from one panel to the next
};

constexpr int kGemvMaxRows = 3;
constexpr int kAbreast = 8;  // panels that one row may be multiplied by side by side

// What one instruction set offers to the drivers in panel_gemm_scalar.cc and panel_gemv_scalar.cc.
struct PanelOps {
  const char* tu;
  int tile_rows;  // rows of a full tile
  // acc[rows][kPairCols] (+)= a[k][tile_rows] * b, for `panels` (1 or 2) panels b[k][16],
  // `b_stride` floats apart. One fma chain over ascending k for each element, whatever rows and
  // panels: results do not depend on the tiling.
  void (*tile)(int rows, int panels, const float* a, const float* b, std::int64_t b_stride, int k,
               float* acc, bool accumulate);
  // out[k][16] = values k0 .. k0 + k of a packed panel; k0 and k in whole blocks, k0 even. nullptr for f32,
  // used as it lies, and, with gemv, for formats without panels.
  void (*decode[kPanelFormatCount])(const std::uint8_t* panel, int k0, int k, float* out);
  void (*gemv[kPanelFormatCount][kGemvMaxRows])(const GemvArgs& args);
  // One row by kAbreast panels: out[kAbreast * 16]. nullptr where there are too few registers, and for
  // weights in blocks. The sums of an element are in another order than those of `gemv`.
  void (*gemv_abreast[kPanelFormatCount])(const GemvArgs& args);
  // acc[r][0..16] = silu(alpha * acc[r][0..16]) * (alpha * acc[r][16..32]).
  void (*gated)(float* acc, int rows, float alpha);
};

// One tile of products of pairs of bf16.
struct PairTile {
  const std::uint32_t* a;  // [pairs][tile_rows], the lower k in the low half
  const std::uint8_t* b;   // a bf16 panel from its first pair on, the next `b_stride` bytes behind
  std::int64_t b_stride;
  int pairs;
  // From here on 64 bytes are fetched into the L2 with every pair; nullptr: nothing is.
  const std::uint8_t* next;
  float* out;  // [rows][ld], the first 16 * panels of each row written
  std::int64_t ld;
};

// Products of bf16 by bf16, two k an instruction, for weights in bf16 panels that are read as they lie.
struct PairOps {
  const char* tu;
  int tile_rows;  // rows of a full tile
  // out = a * b for `panels` (1 or 2) panels: for each element one chain of dot products of two
  // over ascending k, whatever rows and panels. Subnormal operands and sums are zero, as in the
  // tiles of AMX.
  void (*tile)(int rows, int panels, const PairTile& tile);
  // out[pair][tile_rows] of one row: k floats rounded to bf16, to nearest even; an odd k is filled up with zero.
  void (*stage)(const float* row, int k, std::uint32_t* out);
};

const PairOps& PairOpsAvx512Bf16();
const PanelOps& PanelOpsAvx2();
const PanelOps& PanelOpsAvx512();

}  // namespace tilewright::gemm
