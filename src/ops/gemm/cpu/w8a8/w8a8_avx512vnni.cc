#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "ops/gemm/cpu/w8a8/epilogue.h"
#include "ops/gemm/cpu/w8a8/rounding.h"

namespace tilewright::gemm_w8a8 {
namespace {

/// VPDPBUSD takes unsigned activations: code + 128, for which 128 times the sum of the column's codes
/// is taken off in the end. Sums may wrap on the way; the result does not.
constexpr int kFlip = 128;

/// The first kRows rows of a tile times one panel.
template <int kRows>
void MultiplyTile(const Task& task, int row, const std::uint8_t* panel, int first) {
  // With few rows several chains, since a product waits five cycles for the one before.
  constexpr int kChains = kRows >= 4 ? 1 : 4 / kRows;
  const int steps = CeilDiv(task.k, kStepK);
  const std::uint8_t* a =
      task.a + static_cast<std::size_t>(row / kTileRowCount) * TileBytes(task.k);
  __m512i sums[kRows][kChains];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kChains; ++c) sums[r][c] = _mm512_setzero_si512();
  for (int step = 0; step < steps; ++step) {
    for (int four = 0; four < kStepK / 4; four += kChains) {
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) {
        const __m512i codes = _mm512_load_si512(panel + step * kStepBytes + (four + c) * 64);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          std::int32_t word;
          __builtin_memcpy(&word, a + step * kStepBytes + r * kStepK + 4 * (four + c), 4);
          sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], _mm512_set1_epi32(word), codes);
        }
      }
    }
  }
  const PanelEnd& end = EndOf(panel, task.k);
  const __m512i extra = _mm512_slli_epi32(_mm512_load_si512(end.sums), 7);
  for (int r = 0; r < kRows && row + r < task.rows; ++r) {
    __m512i sum = sums[r][0];
    for (int c = 1; c < kChains; ++c) sum = _mm512_add_epi32(sum, sums[r][c]);
    alignas(64) std::int32_t exact[kColumns];
    _mm512_store_si512(exact, _mm512_sub_epi32(sum, extra));
    StoreRow(exact, end.scales, task.row_scales[row + r], task.columns - first,
             task.d + (row + r) * task.ldd + first);
  }
}

void Multiply(const Task& task) {
  for (int first = 0; first < task.columns; first += kColumns) {
    const std::uint8_t* panel =
        task.b + static_cast<std::size_t>(first / kColumns) * PanelBytes(task.k);
    for (int row = 0; row < task.rows; row += kTileRowCount) {
      const int rows = task.rows - row;
      if (rows > 8) {
        MultiplyTile<16>(task, row, panel, first);
      } else if (rows > 4) {
        MultiplyTile<8>(task, row, panel, first);
      } else if (rows > 2) {
        MultiplyTile<4>(task, row, panel, first);
      } else if (rows == 2) {
        MultiplyTile<2>(task, row, panel, first);
      } else {
        MultiplyTile<1>(task, row, panel, first);
      }
    }
  }
}

constexpr IsaOps kOps = {TILEWRIGHT_TU, PackRows<kFlip>, Multiply, FinishRows};

}  // namespace

const IsaOps& OpsAvx512Vnni() { return kOps; }

}  // namespace tilewright::gemm_w8a8
