#include <immintrin.h>

#include "ops/gemm/cpu/panel_layout.h"

namespace tilewright::gemm {
namespace {

constexpr int kTileRows = 12;  // 24 of the 32 registers accumulate
constexpr int kPairsAtOnce = 16;

inline __m512 Dot(__m512 sum, std::uint32_t pair, __m512i weights) {
  const __m512i all = _mm512_set1_epi32(static_cast<int>(pair));
  return _mm512_dpbf16_ps(sum, reinterpret_cast<const __m512bh&>(all),
                          reinterpret_cast<const __m512bh&>(weights));
}

template <int R, int P>
void TileFixed(const PairTile& tile) {
  __m512 sum[R][P] = {};
  const std::uint32_t* a = tile.a;
  const std::uint8_t* b = tile.b;
  const std::uint8_t* next = tile.next;
  for (int i = 0; i < tile.pairs; ++i, a += kTileRows, b += 4 * kPanelCols) {
    if (next != nullptr) {
      __builtin_prefetch(next, 0, 2);
      next += 4 * kPanelCols;
    }
    __m512i weights[P];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      weights[p] = _mm512_loadu_si512(b + p * tile.b_stride);
      // Keeps it in a register: the compiler would rather load it again for every row.
      asm("" : "+v"(weights[p]));
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) sum[r][p] = Dot(sum[r][p], a[r], weights[p]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
      _mm512_storeu_ps(tile.out + r * tile.ld + p * kPanelCols, sum[r][p]);
  }
}

using TileFunction = void (*)(const PairTile&);

template <int P>
constexpr TileFunction kTiles[kTileRows] = {
    &TileFixed<1, P>, &TileFixed<2, P>,  &TileFixed<3, P>,  &TileFixed<4, P>,
    &TileFixed<5, P>, &TileFixed<6, P>,  &TileFixed<7, P>,  &TileFixed<8, P>,
    &TileFixed<9, P>, &TileFixed<10, P>, &TileFixed<11, P>, &TileFixed<12, P>};

void Tile(int rows, int panels, const PairTile& tile) {
  (panels == 2 ? kTiles<2> : kTiles<1>)[rows - 1](tile);
}

// 32 floats, those beyond `count` zero, as 16 pairs of bf16.
inline __m512i RoundPairs(const float* from, int count) {
  const auto mask = count >= 32 ? ~0u : (1u << count) - 1;
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16);
  const __m512bh pairs = _mm512_cvtne2ps_pbh(high, low);
  return reinterpret_cast<const __m512i&>(pairs);
}

void Stage(const float* row, int k, std::uint32_t* out) {
  alignas(64) std::uint32_t pairs[kPairsAtOnce];
  for (int i = 0; i < k; i += 2 * kPairsAtOnce) {
    _mm512_store_si512(pairs, RoundPairs(row + i, k - i));
    const int left = (k - i + 1) / 2, count = left < kPairsAtOnce ? left : kPairsAtOnce;
    for (int j = 0; j < count; ++j, out += kTileRows) *out = pairs[j];
  }
}

constexpr PairOps kOps = {TILEWRIGHT_TU, kTileRows, &Tile, &Stage};

}  // namespace

const PairOps& PairOpsAvx512Bf16() { return kOps; }

}  // namespace tilewright::gemm
