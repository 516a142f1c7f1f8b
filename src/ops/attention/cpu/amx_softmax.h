#pragma once

// The running softmax of 32 query vectors, one in a lane of two registers (amx_block.h).

#include <immintrin.h>

#include <cstdint>

#include "core/tanh_vec.h"
#include "ops/attention/cpu/amx_operands.h"
#include "ops/attention/cpu/exp_constants.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file

// Of two: weights stay above 2^-126, as each that is subnormal costs the processor an assist of a hundred
// cycles, and what is masked comes here as minus infinity.
constexpr float kLowExponent = -125.0f;

/// A row's weights are e^(score - shift). The shift follows the greatest score so far only when that is
/// ahead of it by more than this: a result is scaled anew a few times a row and not in every split,
/// and weights of up to e^8 lose no bits in bf16 and f32.
constexpr float kShiftSlack = 8;

/// e^x for x <= 0 and more exactly than a weight of bf16 needs; zero below 2^-126; NaN stays NaN.
inline __m512 Exp512(__m512 x) {
  const __m512 low = _mm512_set1_ps(kExpLow);
  const __mmask16 below = _mm512_cmp_ps_mask(x, low, _CMP_LT_OQ);
  const __m512 v = _mm512_max_ps(low, x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(v, _mm512_set1_ps(kLog2E)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), v);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), r);
  __m512 p = _mm512_set1_ps(kExpC6);
  for (const float c : {kExpC5, kExpC4, kExpC3, kExpC2, 1.0f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), below, _mm512_setzero_ps());
}

/// e^(x - max) for a weight that is rounded to bf16: x log2(e) - `max_log2`, to the power of two of
/// what is below it times a polynomial of the rest, off by 7.5e-5 at most (minimax for relative
/// error), a twenty-sixth of bf16's rounding. Not below 2^-126. NaN stays NaN.
inline __m512 WeightOf(__m512 x, __m512 max_log2) {
  __m512 y = _mm512_fmsub_ps(x, _mm512_set1_ps(kLog2E), max_log2);
  y = _mm512_max_ps(_mm512_set1_ps(kLowExponent), y);  // the second where one is NaN
  const __m512 r = _mm512_reduce_ps(y, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // y - floor(y)
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.07802445852290515f), r,
                             _mm512_set1_ps(0.22606724668779252f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6958335091571745f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.9999252200363579f));
  return _mm512_scalef_ps(p, y);  // p * 2^floor(y)
}

/// Pairs of bf16 (even, odd) of values that are not negative, to nearest, ties away from zero: four
/// operations, where conversion and permutation take six.
inline __m512i PairsOf(__m512 even, __m512 odd) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  const __m512i high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
  return _mm512_mask_blend_epi16(0xaaaaaaaau, low, high);
}

/// A group of up to 32 vectors within a split, one in a lane.
struct VectorGroup {
  int first = 0, tiles = 0;        ///< first vector; tiles of 16
  int begin = 0, end = 0;          ///< chunks that some vector sees
  int open_from = 0, open_to = 0;  ///< positions of the split that all of its vectors see
  __m512i limit[2], least[2];  ///< positions of the split that a vector sees: least .. limit - 1
};

inline VectorGroup MakeGroup(const AttentionBlock& block, const SplitRows& rows, int from,
                             int first) {
  VectorGroup g;
  g.first = first;
  g.tiles = block.vectors - first > kLane ? 2 : 1;
  alignas(64) std::int32_t limit[kGroup], least[kGroup];
  int lowest = kSplit, highest = 0;
  g.open_from = 0, g.open_to = kSplit;
  for (int i = 0; i < kGroup; ++i) {
    // Lanes behind the last vector do as it does; nobody looks at them.
    const int vector = first + i < block.vectors ? first + i : block.vectors - 1;
    const int row = vector / block.group;
    const int upper = block.limit[row] - from, lower = block.first[row] - from;
    limit[i] = upper < rows.end() ? upper : rows.end();
    least[i] = lower > 0 ? lower : 0;
    if (least[i] < limit[i]) {
      lowest = least[i] < lowest ? least[i] : lowest;
      highest = limit[i] > highest ? limit[i] : highest;
    }
    g.open_from = least[i] > g.open_from ? least[i] : g.open_from;
    g.open_to = limit[i] < g.open_to ? limit[i] : g.open_to;
  }
  g.begin = lowest / kChunk, g.end = (highest + kChunk - 1) / kChunk;
  if (g.end < g.begin) g.end = g.begin;
  for (int t = 0; t < 2; ++t) {
    g.limit[t] = _mm512_load_si512(limit + t * kLane);
    g.least[t] = _mm512_load_si512(least + t * kLane);
  }
  return g;
}

/// Lanes of tile `t` that see position `p` of the split.
inline __mmask16 Sees(const VectorGroup& g, int t, int p) {
  const __m512i position = _mm512_set1_epi32(p);
  return _mm512_cmplt_epi32_mask(position, g.limit[t]) &
         _mm512_cmpge_epi32_mask(position, g.least[t]);
}
inline bool IsOpen(const VectorGroup& g, int chunk) {
  return chunk * kChunk >= g.open_from && (chunk + 1) * kChunk <= g.open_to;
}

/// Soft-caps the scores [kChunk][kGroup] of a chunk.
inline void CapChunk(const VectorGroup& g, float softcap, float* scores) {
  const float inverse = 1.0f / softcap;
  for (int t = 0; t < g.tiles; ++t) {
    for (int p = 0; p < kChunk; ++p) {
      float* at = scores + p * kGroup + t * kLane;
      StoreVec(at, SoftcapVec(LoadVec(at), softcap, inverse));
    }
  }
}

/// The greatest score of a chunk in every lane of tile `t`, of those that it sees; the others become
/// minus infinity.
inline __m512 Greatest(const VectorGroup& g, int t, int chunk, float* scores) {
  const __m512 nothing = _mm512_set1_ps(-__builtin_inff());
  __m512 most[4] = {nothing, nothing, nothing, nothing};
  float* at = scores + t * kLane;
  if (IsOpen(g, chunk)) {
    for (int p = 0; p < kChunk; p += 4) {
      for (int i = 0; i < 4; ++i)
        most[i] = _mm512_max_ps(most[i], _mm512_load_ps(at + (p + i) * kGroup));
    }
  } else {
    for (int p = 0; p < kChunk; ++p) {
      const __m512 x = _mm512_mask_mov_ps(nothing, Sees(g, t, chunk * kChunk + p),
                                          _mm512_load_ps(at + p * kGroup));
      _mm512_store_ps(at + p * kGroup, x);
      most[p % 4] = _mm512_max_ps(most[p % 4], x);
    }
  }
  return _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3]));
}

/// The running softmax of a group: shifts, and sums of the weights of even and odd positions.
struct Running {
  __m512 shift[2], shift_log2[2], even[2], odd[2];
};

inline void SetShift(Running& run, int t, __m512 shift) {
  run.shift[t] = shift;
  // Of lanes that have seen nothing no weight counts, but none may be NaN.
  const __mmask16 none = _mm512_cmp_ps_mask(shift, _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ);
  run.shift_log2[t] =
      _mm512_maskz_mul_ps(static_cast<__mmask16>(~none), shift, _mm512_set1_ps(kLog2E));
}

inline void Resume(const AttentionScratch& s, const VectorGroup& g, Running& run) {
  for (int t = 0; t < g.tiles; ++t) {
    SetShift(run, t, _mm512_loadu_ps(s.max + g.first + t * kLane));
    run.even[t] = _mm512_loadu_ps(s.sum + g.first + t * kLane);
    run.odd[t] = _mm512_setzero_ps();
  }
}
inline void Suspend(const VectorGroup& g, const Running& run, const AttentionScratch& s) {
  for (int t = 0; t < g.tiles; ++t) {
    _mm512_storeu_ps(s.max + g.first + t * kLane, run.shift[t]);
    _mm512_storeu_ps(s.sum + g.first + t * kLane, _mm512_add_ps(run.even[t], run.odd[t]));
  }
}

/// Lanes whose shift has to follow these maxima.
inline __mmask16 Overtaken(const Running& run, int t, __m512 max) {
  return _mm512_cmp_ps_mask(max, _mm512_add_ps(run.shift[t], _mm512_set1_ps(kShiftSlack)),
                            _CMP_GT_OQ);
}

/// Moves the shifts of lanes `raised` of tile `t` to `max` and scales what they have: out and sums.
/// Other lanes are multiplied by one.
inline void Raise(Running& run, int t, __mmask16 raised, __m512 max, int hd, float* out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 keep = _mm512_mask_mov_ps(one, raised, Exp512(_mm512_sub_ps(run.shift[t], max)));
  run.even[t] = _mm512_mul_ps(run.even[t], keep);
  run.odd[t] = _mm512_mul_ps(run.odd[t], keep);
  for (int d = 0; d < hd; ++d)
    _mm512_storeu_ps(out + d * kLane, _mm512_mul_ps(_mm512_loadu_ps(out + d * kLane), keep));
  SetShift(run, t, _mm512_mask_mov_ps(run.shift[t], raised, max));
}

/// Weights of the pairs of positions [begin, end) of a chunk as second operands: a tile of [pair of
/// positions][vector][2] for every 16 vectors.
inline void WeighPairs(const VectorGroup& g, int chunk, int begin, int end, const float* scores,
                       Running& run, std::uint16_t* weights) {
  const bool open = IsOpen(g, chunk);
  for (int t = 0; t < g.tiles; ++t) {
    std::uint16_t* tile = weights + (chunk * 2 + t) * kTileWords;
    const float* at = scores + 2 * begin * kGroup + t * kLane;
    const __m512 shift = run.shift_log2[t];
    __m512 even_sum = run.even[t], odd_sum = run.odd[t];
    for (int pair = begin; pair < end; ++pair, at += 2 * kGroup) {
      __m512 even = WeightOf(_mm512_load_ps(at), shift);
      __m512 odd = WeightOf(_mm512_load_ps(at + kGroup), shift);
      if (!open) {
        even = _mm512_maskz_mov_ps(Sees(g, t, chunk * kChunk + 2 * pair), even);
        odd = _mm512_maskz_mov_ps(Sees(g, t, chunk * kChunk + 2 * pair + 1), odd);
      }
      even_sum = _mm512_add_ps(even_sum, even);
      odd_sum = _mm512_add_ps(odd_sum, odd);
      _mm512_store_si512(tile + 32 * pair, PairsOf(even, odd));
    }
    run.even[t] = even_sum, run.odd[t] = odd_sum;
  }
}

}  // namespace
}  // namespace tilewright
