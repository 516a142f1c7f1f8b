#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "core/numeric.h"
#include "ops/attention/cpu/exp_constants.h"

namespace tilewright {
namespace {

struct V {
  static constexpr int kWidth = 8;
  // 3 rows x 4 vectors of accumulators, 4 of B, 1 broadcast: the 16 registers.
  static constexpr int kTileRows = 3;
  __m256 x;

  static V Zero() { return {_mm256_setzero_ps()}; }
  static V Set(float v) { return {_mm256_set1_ps(v)}; }
  static V Load(const float* p) { return {_mm256_loadu_ps(p)}; }
  void Store(float* p) const { _mm256_storeu_ps(p, x); }
  static V Fma(V a, V b, V c) { return {_mm256_fmadd_ps(a.x, b.x, c.x)}; }
  static V Add(V a, V b) { return {_mm256_add_ps(a.x, b.x)}; }
  static V Sub(V a, V b) { return {_mm256_sub_ps(a.x, b.x)}; }
  static V Mul(V a, V b) { return {_mm256_mul_ps(a.x, b.x)}; }
  static V Max(V a, V b) { return {_mm256_max_ps(a.x, b.x)}; }
  static float ReduceMax(V a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a.x), _mm256_extractf128_ps(a.x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
  }
  static float ReduceAdd(V a) {
    __m128 m = _mm_add_ps(_mm256_castps256_ps128(a.x), _mm256_extractf128_ps(a.x, 1));
    m = _mm_add_ps(m, _mm_movehl_ps(m, m));
    m = _mm_add_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
  }
  static V Exp(V a) {
    const __m256 low = _mm256_set1_ps(kExpLow);
    const __m256 below =
        _mm256_cmp_ps(a.x, low, _CMP_LT_OQ);   // false for NaN, which passes through
    const __m256 v = _mm256_max_ps(low, a.x);  // second operand on NaN
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(v, _mm256_set1_ps(kLog2E)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2High), v);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Low), r);
    __m256 p = _mm256_set1_ps(kExpC6);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpC2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    const __m256i scale =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return {_mm256_andnot_ps(below, _mm256_mul_ps(p, _mm256_castsi256_ps(scale)))};
  }
  static float ExpScalar(float v) { return _mm256_cvtss_f32(Exp(Set(v)).x); }
  static void ConvertQ8(const unsigned char* block, float* out) {
    const __m256 d =
        _mm256_set1_ps(F16ToF32(static_cast<std::uint16_t>(block[0] | (block[1] << 8))));
    for (int i = 0; i < 32; i += 8) {
      const __m128i q = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + 2 + i));
      _mm256_storeu_ps(out + i, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q))));
    }
  }
  static void ConvertF16(const std::uint16_t* in, int count, float* out) {
    int i = 0;
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(out + i,
                       _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
    }
    for (; i < count; ++i) out[i] = F16ToF32(in[i]);
  }

  static void Transpose8(const float* rows, int row_ld, float* columns, int column_ld) {
    __m256 r[8], t[8];
    for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(rows + i * row_ld);
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_ps(columns + i * column_ld, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
      _mm256_storeu_ps(columns + (i + 4) * column_ld, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
  }
  /// columns[d][p] = rows[p][d] for p < positions, a multiple of 16; columns `column_ld` apart.
  static void Transpose(const float* rows, int row_ld, int hd, float* columns, int column_ld,
                        int positions) {
    int d = 0;
    for (; d + 8 <= hd; d += 8) {
      for (int p = 0; p < positions; p += 8) {
        Transpose8(rows + p * row_ld + d, row_ld, columns + d * column_ld + p, column_ld);
      }
    }
    for (; d < hd; ++d)
      for (int p = 0; p < positions; ++p) columns[d * column_ld + p] = rows[p * row_ld + d];
  }
};

}  // namespace
}  // namespace tilewright

#include "ops/attention/cpu/attention_tile.h"

namespace tilewright {

AttentionFunctions AttentionAvx2() { return {ComputeSplit, MergeSplit}; }
const char* AttentionAvx2Tu() { return TILEWRIGHT_TU; }

}  // namespace tilewright
