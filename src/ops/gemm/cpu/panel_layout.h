#pragma once

#include <cstdint>

#include "ops/gemm/formats.h"
#include "tilewright/types.h"

namespace tilewright::gemm {

// A panel holds 16 columns of B. Plain types: [k][16]. Block formats keep every bit of the original
// blocks, per block of k:
//   q4_0   f16 d[16] | u8 q[16 pairs of k][16]                      even k in the low nibble
//   q4_1   f16 d[16] | f16 m[16] | u8 q[16 pairs of k][16]
//   q8_0   f16 d[16] | i8 q[32][16]
//   q6_k   f16 d[16] | i8 scale[16][16] | u8 low[128 pairs of k][16] | u8 high[64 quads of k][16]
//   lowest k in the lowest bits
// so a panel takes exactly 16 times the bytes of a column.
constexpr int kPanelCols = 16;
constexpr int kPairCols =
    2 * kPanelCols;  // a tile spans two panels: also one gate/up pair of Epilogue::kGatedSilu

static inline std::int64_t PanelBytes(DataType type, std::int64_t k) {
  return k / BlockElements(type) * BlockBytes(type) * kPanelCols;
}

// Formats in the order of the tables in PanelOps.
constexpr DataType kPanelFormats[] = {DataType::kF32,  DataType::kF16,  DataType::kBF16,
                                      DataType::kQ4_0, DataType::kQ4_1, DataType::kQ8_0,
                                      DataType::kQ6_K};
constexpr int kPanelFormatCount = 7;

struct GemvArgs {
  const std::uint8_t* panel;
  int k;
  const float* a;  // [rows][lda]
  std::int64_t lda;
  const float* sums;  // [rows][ld_sums]: sums of 32 consecutive a; read for q4_1 only
  std::int64_t ld_sums;
  float* out;  // [rows][kPairCols], the first 16 of each written
};

constexpr int kGemvMaxRows = 3;

// What one instruction set offers to the drivers in panel_gemm_scalar.cc and panel_gemv_scalar.cc.
struct PanelOps {
  const char* tu;
  int tile_rows;  // rows of a full tile
  // acc[rows][kPairCols] (+)= a[k][tile_rows] * b, for `panels` (1 or 2) panels b[k][16],
  // `b_stride` floats apart. One fma chain over ascending k for each element, whatever rows and
  // panels: results do not depend on the tiling.
  void (*tile)(int rows, int panels, const float* a, const float* b, std::int64_t b_stride, int k,
               float* acc, bool accumulate);
  // out[k][16] = values k0 .. k0 + k of a packed panel; k0 and k in whole blocks. nullptr for f32,
  // used as it lies.
  void (*decode[kPanelFormatCount])(const std::uint8_t* panel, int k0, int k, float* out);
  void (*gemv[kPanelFormatCount][kGemvMaxRows])(const GemvArgs& args);
  // acc[r][0..16] = silu(alpha * acc[r][0..16]) * (alpha * acc[r][16..32]).
  void (*gated)(float* acc, int rows, float alpha);
};

const PanelOps& PanelOpsAvx2();
const PanelOps& PanelOpsAvx512();

}  // namespace tilewright::gemm
