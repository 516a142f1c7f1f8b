#pragma once

#include <cstddef>
#include <cstdint>

/// The memory layouts that packing, quantisation and the kernels of every instruction set share.
/// Plain constants and static functions only: this header is compiled into kernel files.
///
/// Packed weights. Sixteen rows of W[n][k] (columns of B) make a panel; rows beyond n are zero.
/// Panels follow each other, PanelBytes apart. Inside a panel come the codes of all blocks of 32 k,
/// then their scales:
///
///   codes of a block   a 64-byte line holds, for each of the 16 columns, one byte for each of 4
///   consecutive k (a "quad"):
///                      line[4 * column + i] belongs to k = 4 * quad + i. That is what one vpdpbusd
///                      multiplies.
///     q4_0, q4_1       4 lines; line l: quad l in the low nibbles, quad l + 4 in the high ones
///     q8_0             8 lines; line l: quad l, stored as value + 128
///     q6_k             4 lines of low nibbles as in q4_0, then 2 lines of high bits; line h holds
///     quads 2 h, 2 h + 1, 2 h + 4,
///                      2 h + 5 in its bits 0-1, 2-3, 4-5, 6-7
///   scales of a block  q4_0, q8_0: d[16] as f16. q4_1: d[16], m[16] as f16. q6_k: int8
///   scale[2][16], for k 0..15 and 16..31;
///                      and after the scales of every 8 blocks d[16] as f16.
///
/// Quantised activations. `rows` rows make a tile; a tile is a sequence of records, one for each
/// block of 32 k:
///
///   int8 q[rows][32]; float d[rows]; Correction c[rows or 2 * rows]
///
/// The correction makes unsigned codes signed: q4_0: int32 -8 * sum(q); q8_0: int32 -128 * sum(q);
/// q6_k: int32 -32 * sum(q) for either half of the block, [2][rows]; q4_1: float d * sum(q), the
/// factor of m.

namespace tilewright::gemm_int8 {

enum class Format : int { kQ4_0 = 0, kQ4_1 = 1, kQ8_0 = 2, kQ6_K = 3 };
constexpr int kFormats = 4;
constexpr int kPanelColumns = 16;
constexpr int kBlock = 32;
constexpr int kMaxTileRows = 12;

/// Values of k that a multiple of is needed: the block of the file format.
static constexpr int BlockOf(Format format) { return format == Format::kQ6_K ? 256 : 32; }

/// Bytes of the codes of one block of a panel.
static constexpr int CodeBytes(Format format) {
  return format == Format::kQ8_0 ? 512 : format == Format::kQ6_K ? 384 : 256;
}

/// Bytes of the scales of `blocks` blocks of a panel.
static constexpr std::size_t ScaleBytes(Format format, int blocks) {
  const auto count = static_cast<std::size_t>(blocks);
  if (format == Format::kQ4_1) return count * 64;
  if (format == Format::kQ6_K) return count * 36;  // 8 * 32 + 32 for each 8 blocks
  return count * 32;
}

static constexpr std::size_t PanelBytes(Format format, int blocks) {
  const std::size_t codes =
      static_cast<std::size_t>(CodeBytes(format)) * static_cast<std::size_t>(blocks);
  return (codes + ScaleBytes(format, blocks) + 63) / 64 * 64;
}

/// Bytes of one row of one record of a tile.
static constexpr int RecordBytes(Format format) { return format == Format::kQ6_K ? 44 : 40; }

/// A row tile against a range of panels.
struct TileArgs {
  const std::uint8_t* a = nullptr;  ///< quantised tile
  const std::uint8_t* b = nullptr;  ///< first panel
  std::size_t panel_bytes = 0;
  int rows = 0;    ///< 1 .. kMaxTileRows of the instruction set
  int panels = 0;  ///< even when gated
  int blocks = 0;  ///< k / 32
  bool gated = false;
  float alpha = 1.0f, beta = 0.0f;
  const float* c =
      nullptr;  ///< C at the first row and first output column of the range; unused when beta == 0
  std::int64_t ldc = 0;
  float* d = nullptr;  ///< D at the same place
  std::int64_t ldd = 0;
  int columns = 0;  ///< output columns of the range that exist
};

/// What one kernel file offers.
struct IsaOps {
  int tile_rows[kFormats];  ///< rows of a full tile
  /// Quantises `rows` rows of `blocks` * 32 floats into a tile (rows * blocks * RecordBytes bytes).
  void (*quantise[kFormats])(const float* a, std::int64_t lda, int rows, int blocks,
                             std::uint8_t* tile);
  void (*compute[kFormats])(const TileArgs& args);
};

const IsaOps& OpsScalar();
const IsaOps& OpsAvx2();
const IsaOps& OpsAvx512();
const IsaOps& OpsAvx512Vnni();

}  // namespace tilewright::gemm_int8
