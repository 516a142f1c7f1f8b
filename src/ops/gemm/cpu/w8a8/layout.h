#pragma once

#include <cstddef>
#include <cstdint>

/// Products of int8 by int8 with one scale a row of activations and one a column of weights ("W8A8"):
/// D = (exact int32 sum over all of k) * scale of the column * scale of the row. What a driver and a
/// kernel file share: plain constants, structs and static functions.
///
/// Less accurate than int8 with a scale for every 32: one large value of a row or column makes the
/// step of all others as large.
///
/// Both operands lie in tiles of 1 KB, a step of 64 k each, with zeros beyond the last row, column
/// and k:
///   activations [tile of 16 rows][step][16 rows][64]
///   weights     [panel of 16 columns][step][16 fours of k][16 columns][4], then of the panel
///               f32 scales[16] and int32 sums of codes[16]
/// A step of a panel is the B operand of TDPBSSD and sixteen vectors of VPDPBUSD, so that one copy of the
/// weights serves one row and many.

namespace tilewright::gemm_w8a8 {

constexpr int kStepK = 64, kStepBytes = 1024;
constexpr int kTileRowCount = 16;  ///< rows of a tile of activations
constexpr int kColumns = 16;       ///< columns of a panel
/// Codes are within +-127, so that a sum over so many k is within int32.
constexpr int kMostK = 0x7fffffff / (127 * 127);

static inline constexpr int CeilDiv(int value, int by) { return (value + by - 1) / by; }
static inline constexpr std::size_t TileBytes(int k) {
  return static_cast<std::size_t>(CeilDiv(k, kStepK)) * kStepBytes;
}
static inline constexpr std::size_t PanelBytes(int k) {
  return TileBytes(k) + kColumns * (sizeof(float) + sizeof(std::int32_t));
}

/// A run of panels times a block of rows.
struct Task {
  const std::uint8_t* a = nullptr;  ///< packed activations, aligned to 64 bytes
  const float* row_scales = nullptr;
  int rows = 0, k = 0;              ///< k: 1 to kMostK
  const std::uint8_t* b = nullptr;  ///< packed panels, aligned to 64 bytes
  int columns = 0;                  ///< that exist
  float* d = nullptr;               ///< [rows][columns]
  std::int64_t ldd = 0;             ///< in elements
};

/// Products that become D: alpha * product + beta * C, or of pairs of 16 gate and 16 up
/// silu(alpha * gate) * (alpha * up) + beta * C.
struct Finish {
  const float* products = nullptr;  ///< [rows][ld]; ld counts elements
  std::int64_t ld = 0;
  int rows = 0;
  int columns = 0;  ///< of D; gated: a multiple of 16
  bool gated = false;
  float alpha = 1, beta = 0;
  const float* c = nullptr;  ///< [rows][ldc], may be D; nullptr without beta
  std::int64_t ldc = 0;
  float* d = nullptr;
  std::int64_t ldd = 0;
};

/// One kernel file. All of them give the same bits. Functions are for any thread; those of AMX need a
/// thread that may use tiles (device/cpu/tiles.h).
struct IsaOps {
  const char* tu;
  /// Rounds 1 to 16 rows of k floats, `lda` elements apart, to one tile after the other, and writes a
  /// scale for each row: largest magnitude / 127, NaN where a value is not finite.
  void (*pack_rows)(const float* a, std::int64_t lda, int rows, int k, std::uint8_t* tiles,
                    float* scales);
  /// The packed activations must come from the same kernel file.
  void (*multiply)(const Task& task);
  void (*finish)(const Finish& task);
};

/// Rounds 1 to 16 columns of k floats each, column c at `columns + c * ld`, to a panel of
/// PanelBytes(k). A column that has a value that is not finite gets the scale NaN.
void PackPanel(const float* columns, std::int64_t ld, int count, int k, std::uint8_t* panel);

const IsaOps& OpsScalar();
const IsaOps& OpsAvx512Vnni();  ///< needs AVX-512 and VNNI
const IsaOps& OpsAmx();         ///< needs AMX int8 besides

}  // namespace tilewright::gemm_w8a8
