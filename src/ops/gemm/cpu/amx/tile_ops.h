#pragma once

#include <cstddef>
#include <cstdint>

#include "core/formats/formats.h"
#include "tilewright/types.h"

/// What the driver (gemm_amx.cc) and a kernel file share: plain constants, structs and static
/// functions only, since this header is compiled into kernel files.
///
/// Activations are packed once a launch, as bf16 in tiles of 16 rows by 32 k:
///   [block of rows][chunk of k][tile of rows][step of 32 k][16][32]
/// with zeros beyond the last row and the last k. (Chunk before tile: what a core multiplies by at a time
/// lies in one piece. Tiles 128 KB apart would share sets of its L2.) Weights stay in the panels of 16 columns that
/// decoding reads; a step of a panel becomes a tile of [16 pairs of k][16 columns][2] in bf16, the
/// B operand of TDPBF16PS. Or the other way round (Operand::kB): activations in [16 pairs][16 rows][2], weights in
/// [16 columns][32], k of a step in TableOrder.

namespace tilewright::gemm_amx {

constexpr int kStepK = 32;         ///< k of one tile
constexpr int kStepBytes = 1024;   ///< of either operand
constexpr int kTileRowCount = 16;  ///< rows of a tile of activations
constexpr int kColumns = 16;       ///< columns of a panel
constexpr int kSumsOfTile = kTileRowCount * kColumns;
/// Row tiles and panels whose sums stay in registers: four of the eight tiles; the others hold an
/// operand each. (3 x 2 sums leave two for operands, so that tiles of A are loaded twice: a few
/// percent slower at k = 4096, 18 % at 576.)
constexpr int kGroupTiles = 2, kGroupPanels = 2;
/// Panels whose sums go to D together: 512 bytes of each row.
constexpr int kStoredPanels = 8;

static inline constexpr int CeilDiv(int value, int by) { return (value + by - 1) / by; }

/// A run of panels times a block of rows. Sums over `chunk_steps` steps of k stay in registers; with
/// more, they are kept in `scratch` in between.
struct PanelTask {
  const std::uint8_t* a = nullptr;  ///< packed activations of the block
  int rows = 0;
  int k = 0, steps = 0;             ///< steps of k, of which the last may be short
  const std::uint8_t* b = nullptr;  ///< first panel
  std::size_t panel_bytes = 0;
  int panels = 0;       ///< even when gated
  int chunk_steps = 0;  ///< even for f16, of which each step takes two
  int steps_ahead = 0;  ///< of which weights are fetched, where a chunk is all of k
  bool gated = false;
  float alpha = 1.0f, beta = 0.0f;
  const float* c = nullptr;  ///< C at the first row and output column; unused when beta == 0
  std::int64_t ldc = 0;
  float* d = nullptr;  ///< D at the same place
  std::int64_t ldd = 0;
  int columns = 0;                  ///< output columns of the run that exist
  std::uint8_t* scratch = nullptr;  ///< ScratchBytes, aligned to 64 bytes
};

/// Unpacked weights of a pair of panels over a chunk of k, then sums.
static inline constexpr std::size_t UnpackedBytes(int chunk_steps) {
  return static_cast<std::size_t>(chunk_steps) * kGroupPanels * kStepBytes;
}
static inline constexpr std::size_t SumBytes(int row_tiles, int panels) {
  return static_cast<std::size_t>(row_tiles) * static_cast<std::size_t>(panels) * kSumsOfTile *
         sizeof(float);
}
static inline constexpr std::size_t ScratchBytes(int chunk_steps, int row_tiles, int panels) {
  return UnpackedBytes(chunk_steps) + SumBytes(row_tiles, panels);
}

/// The k of word i of a row of weights that went through a table of 16 values: the nibbles of its 16
/// bytes leave in the order of vec_amx.h's TableRow.
static inline constexpr int TableOrder(int i) {
  const int even = 2 * (i % 8);
  return i < 8 ? even : i < 16 ? 16 + even : i < 24 ? even + 1 : 17 + even;
}

/// Place of a type of weights in the tables of TileOps.
constexpr int kWeightTypes = 2 + kFormatCount;
static inline constexpr int IndexOf(DataType type) {
  if (type == DataType::kBF16) return 0;
  return type == DataType::kF16 ? 1 : 2 + static_cast<int>(type) - kFirstFormat;
}

/// How activations are packed, which follows from the type of weights.
enum class Operand : int {
  kA,  ///< the A operand; D in place; weights as pairs of k
  /// The B operand; sums transposed. Weights are rows, of nibbles each of which goes through a table of 16
  /// values with two shuffles.
  kB,
  /// As kA, but k in QuadOrder and times kQuadsUp: weights are pairs that came through f16, kF16Up * 2^-112
  /// times their values. Products are then 2^-38 times what they are, small enough for sums not to overflow,
  /// large enough for none that matters to vanish; an activation of 2^63 and more is infinite.
  kQuads,
};
constexpr int kOperands = 3;
constexpr float kF16Up = 0x1p10f, kQuadsUp = 0x1p64f;
constexpr float kQuadsDown = 0x1p112f / kF16Up / kQuadsUp;  ///< by which sums are multiplied

/// The k of word i of a step in Operand::kQuads: 0, 2, 1, 3 of each four.
static inline constexpr int QuadOrder(int i) {
  return i / 4 * 4 + (i % 4 == 1 ? 2 : i % 4 == 2 ? 1 : i % 4);
}

/// Rounds `rows` (1 to 16) rows of k floats, `lda` apart, to tiles one after the other.
using PackTile = void(const float* a, std::int64_t lda, int rows, int k, std::uint8_t* tile);

/// One kernel file: the instructions, or their emulation.
struct TileOps {
  struct Weights {
    Operand activations = Operand::kA;
    void (*multiply)(const PanelTask& task) = nullptr;  ///< null for formats without kernels
  };
  const char* tu;
  PackTile* pack[kOperands];      ///< by Operand
  Weights weights[kWeightTypes];  ///< by IndexOf
};

/// The instructions: for processors with AMX only.
const TileOps& TileOpsAmx();

}  // namespace tilewright::gemm_amx
