#pragma once

#include <cstddef>
#include <cstdint>

#include "core/formats/formats.h"
#include "core/i8x32.h"

/// The memory layouts that packing, quantisation and the kernels of every instruction set share.
/// Plain constants and static functions only: this header is compiled into kernel files.
///
/// Packed weights. Sixteen rows of W[n][k] (columns of B) make a panel; rows beyond n are zero.
/// Panels follow each other, PanelBytes apart. Inside a panel come the codes of all blocks of 32 k,
/// then their scales:
///
///   codes of a block   a 64-byte line holds, for each of the 16 columns, one byte for each of 4
///   consecutive k (a "quad"): line[4 * column + i] belongs to k = 4 * quad + i. That is what one
///   vpdpbusd multiplies.
///     4 bits           4 lines; line l: quad l in the low nibbles, quad l + 4 in the high ones
///     5 bits           4 lines of low nibbles so, then 1 line of fifth bits: bit q for quad q
///     6 bits           4 lines of low nibbles so, then 2 lines of high bits; line h holds quads
///                      2 h, 2 h + 1, 2 h + 4, 2 h + 5 in its bits 0-1, 2-3, 4-5, 6-7
///     8 bits           8 lines; line l: quad l
///     2 bits           2 lines, laid out as the high bits of 6 bits
///     3 bits           2 lines of low bits so, then 1 line of third bits: bit q for quad q
///   factors of a block
///     Factor::kF16     f16 scale[16], then f16 min[16] where the format has one
///     kPowerOfTwo      uint8 scale[16]
///     kF16TimesInt     int8 scale[sub-block][16], then int8 min[sub-block][16] (of 4 bits each:
///                      uint8 scale | min << 4 [sub-block][16]); the f16 follow after the integers
///                      of every block of the file
///
/// Quantised activations. `rows` rows make a tile; a tile is a sequence of records, one for each
/// block of 32 k:
///
///   int8 q[rows][32]; float d[rows]; Correction c[sub-blocks of 32 k][rows]
///
/// The correction of a format without a minimum makes unsigned codes signed: int32 -zero * sum(q)
/// of the sub-block. That of a format with one is its factor: float d * sum(q).

namespace tilewright::gemm_int8 {

constexpr int kPanelColumns = 16;
constexpr int kBlock = BlockI8x32::kElements;
constexpr int kMaxTileRows = 12;

/// Whether there are kernels for a format: those of micro_kernel.h, chosen by the width of the
/// code.
static inline constexpr bool HasInt8(const BlockFormat& f) {
  const bool integers = f.scale == Factor::kF16TimesInt;
  if (f.has_table) {
    return PanelCodeBits(f) == 4 && f.sub_block == kBlock && f.min == Factor::kNone;
  }
  switch (PanelCodeBits(f)) {
    case 2:
    case 3:
      return f.sub_block == kBlock / 2 && integers &&
             (f.min == Factor::kNone || f.min == Factor::kF16TimesInt);
    case 4:
    case 5:
      return f.sub_block == kBlock && f.scale != Factor::kPowerOfTwo;
    case 6:
      return f.sub_block == kBlock / 2 && integers && f.min == Factor::kNone;
    case 8:
      return f.sub_block == kBlock && f.scale == Factor::kF16 && f.min == Factor::kNone &&
             f.zero == 128;
    default:
      return false;
  }
}

/// What kernels multiply for the value 0. Of a lookup table they multiply a value plus this,
/// unsigned: the smallest value becomes 0, where that makes codes of 6 bits.
static inline constexpr int ZeroOf(const BlockFormat& f) {
  if (!f.has_table) return f.zero;
  int least = 0, most = 0;
  for (int i = 0; i < 16; ++i) {
    least = f.values[i] < least ? f.values[i] : least;
    most = f.values[i] > most ? f.values[i] : most;
  }
  return most - least < 64 ? -least : 128;
}

/// A lookup table as bytes of what kernels multiply.
struct CodeTable {
  alignas(16) std::uint8_t value[16];
};
static inline constexpr CodeTable TableOf(const BlockFormat& f, int zero) {
  CodeTable table = {};
  for (int i = 0; i < 16; ++i) table.value[i] = static_cast<std::uint8_t>(f.values[i] + zero);
  return table;
}

/// The largest number that kernels multiply.
static inline constexpr int LargestCode(const BlockFormat& f) {
  if (!f.has_table) return (1 << PanelCodeBits(f)) - 1;
  int most = 0;
  for (const std::uint8_t value : TableOf(f, ZeroOf(f)).value) most = value > most ? value : most;
  return most;
}

/// Place of a format in the tables of IsaOps.
static inline constexpr int IndexOf(const BlockFormat& f) {
  return static_cast<int>(f.type) - kFirstFormat;
}

/// Bytes of the codes of one block of 32 k of a panel.
static inline constexpr int CodeBytes(const BlockFormat& f) {
  return kPanelColumns * kBlock * PanelCodeBits(f) / 8;
}

/// Bytes of the integer factors of one block of 32 k of a panel.
static inline constexpr int IntegerBytes(const BlockFormat& f) {
  const int each = kPanelColumns * kBlock / f.sub_block;
  if (f.PairsIntegers()) return each;
  return (f.scale == Factor::kF16TimesInt ? each : 0) + (f.min == Factor::kF16TimesInt ? each : 0);
}
/// Bytes of the other factors of one block of the file, for a panel.
static inline constexpr int HalfBytes(const BlockFormat& f) {
  return kPanelColumns * (f.scale_bytes() + f.min_bytes());
}
/// Bytes of the factors of one block of 32 k of a panel, on average.
static inline constexpr int FactorBytes(const BlockFormat& f) {
  return IntegerBytes(f) + HalfBytes(f) * kBlock / f.elements;
}

static inline constexpr std::size_t PanelBytes(const BlockFormat& f, int blocks) {
  return (static_cast<std::size_t>(CodeBytes(f) + FactorBytes(f)) *
              static_cast<std::size_t>(blocks) +
          63) /
         64 * 64;
}

/// Bytes of one row of one record of a tile.
static inline constexpr int RecordBytes(const BlockFormat& f) {
  return kBlock + 4 + 4 * (kBlock / f.sub_block);
}

/// Writes what belongs to row r of a record beside its codes: the scale, and what follows from the
/// sums of the codes over k 0..15 and 16..31.
template <class Block>
static inline void PutRecord(float scale, std::int32_t low, std::int32_t high, int rows, int r,
                             std::uint8_t* x) {
  constexpr BlockFormat kFormat = Block::kFormat;
  auto* d = reinterpret_cast<float*>(x + kBlock * rows);
  auto* correction = reinterpret_cast<std::int32_t*>(d + rows);
  d[r] = scale;
  const auto put = [&](int sub_block, std::int32_t sum) {
    std::int32_t* at = correction + sub_block * rows + r;
    if constexpr (kFormat.min != Factor::kNone) {
      *reinterpret_cast<float*>(at) = scale * static_cast<float>(sum);
    } else {
      *at = -ZeroOf(kFormat) * sum;
    }
  };
  if constexpr (kFormat.sub_block < kBlock) {
    put(0, low);
    put(1, high);
  } else {
    put(0, low + high);
  }
}

/// A row tile against a range of panels.
struct TileArgs {
  const std::uint8_t* a = nullptr;  ///< quantised tile
  const std::uint8_t* b = nullptr;  ///< first panel
  std::size_t panel_bytes = 0;
  int rows = 0;    ///< 1 .. kMaxTileRows of the instruction set
  int panels = 0;  ///< even when gated
  int blocks = 0;  ///< k / 32
  bool gated = false;
  bool abreast = false;  ///< one row: IsaOps::abreast panels at a time
  float alpha = 1.0f, beta = 0.0f;
  /// C at the first row and first output column of the range; unused when beta == 0.
  const float* c = nullptr;
  std::int64_t ldc = 0;
  float* d = nullptr;  ///< D at the same place
  std::int64_t ldd = 0;
  int columns = 0;  ///< output columns of the range that exist
};

/// What one kernel file offers: by IndexOf, 0 and null for formats that have no kernels.
struct IsaOps {
  int tile_rows[kFormatCount];  ///< rows of a full tile
  int abreast[kFormatCount];    ///< panels that one row may be multiplied by side by side, else 1
  /// Quantises `rows` rows of `blocks` * 32 floats into a tile (rows * blocks * RecordBytes bytes).
  void (*quantise[kFormatCount])(const float* a, std::int64_t lda, int rows, int blocks,
                                 std::uint8_t* tile);
  void (*compute[kFormatCount])(const TileArgs& args);
};

const IsaOps& OpsScalar();
const IsaOps& OpsAvx2();
const IsaOps& OpsAvx512();
const IsaOps& OpsAvx512Vnni();

}  // namespace tilewright::gemm_int8
