#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "core/numeric.h"
#include "ops/attention/cpu/exp_constants.h"
#include "ops/attention/cpu/transpose_avx512.h"

namespace tilewright {
namespace {

struct V {
  static constexpr int kWidth = 16;
  // 6 x 4 accumulators, 4 of B, 1 broadcast: 29 of 32 registers.
  static constexpr int kTileRows = 6;
  __m512 x;

  static V Zero() { return {_mm512_setzero_ps()}; }
  static V Set(float v) { return {_mm512_set1_ps(v)}; }
  static V Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  void Store(float* p) const { _mm512_storeu_ps(p, x); }
  static V Fma(V a, V b, V c) { return {_mm512_fmadd_ps(a.x, b.x, c.x)}; }
  static V Add(V a, V b) { return {_mm512_add_ps(a.x, b.x)}; }
  static V Sub(V a, V b) { return {_mm512_sub_ps(a.x, b.x)}; }
  static V Mul(V a, V b) { return {_mm512_mul_ps(a.x, b.x)}; }
  static V Max(V a, V b) { return {_mm512_max_ps(a.x, b.x)}; }
  static float ReduceMax(V a) { return _mm512_reduce_max_ps(a.x); }
  static float ReduceAdd(V a) { return _mm512_reduce_add_ps(a.x); }
  static V Exp(V a) {
    const __m512 low = _mm512_set1_ps(kExpLow);
    const __mmask16 below =
        _mm512_cmp_ps_mask(a.x, low, _CMP_LT_OQ);  // false for NaN, which passes through
    const __m512 v = _mm512_max_ps(low, a.x);
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(v, _mm512_set1_ps(kLog2E)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), v);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), r);
    __m512 p = _mm512_set1_ps(kExpC6);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpC2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return {_mm512_mask_mov_ps(_mm512_scalef_ps(p, n), below, _mm512_setzero_ps())};
  }
  static float ExpScalar(float v) { return _mm512_cvtss_f32(Exp(Set(v)).x); }
  /// 16 elements of a block of q8_0, from `first` on.
  static __m512 HalfOfQ8(const unsigned char* block, int first) {
    std::uint16_t scale;
    __builtin_memcpy(&scale, block, sizeof scale);
    const __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(scale)));
    const __m128i q = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2 + first));
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
  }
  static void ConvertQ8(const unsigned char* block, float* out) {
    _mm512_storeu_ps(out, HalfOfQ8(block, 0));
    _mm512_storeu_ps(out + 16, HalfOfQ8(block, 16));
  }
  static void ConvertF16(const std::uint16_t* in, int count, float* out) {
    int i = 0;
    for (; i + 64 <= count;
         i += 64) {  // loads before stores, which may look as if they were to the same place
      __m512 x[4];
      for (int u = 0; u < 4; ++u) {
        x[u] =
            _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i + 16 * u)));
      }
      for (int u = 0; u < 4; ++u) _mm512_storeu_ps(out + i + 16 * u, x[u]);
    }
    for (; i + 16 <= count; i += 16) {
      _mm512_storeu_ps(
          out + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i))));
    }
    for (; i < count; ++i) out[i] = F16ToF32(in[i]);
  }

  static void Transpose16(const float* rows, int row_ld, float* columns, int column_ld) {
    __m512 r[16];
    for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(rows + i * row_ld);
    TransposeInRegisters(r);
    for (int i = 0; i < 16; ++i) _mm512_storeu_ps(columns + i * column_ld, r[i]);
  }
  /// columns[d][p] = rows[p][d] for p < positions, a multiple of 16; columns `column_ld` apart.
  static void Transpose(const float* rows, int row_ld, int hd, float* columns, int column_ld,
                        int positions) {
    int d = 0;
    for (; d + 16 <= hd; d += 16) {
      for (int p = 0; p < positions; p += 16) {
        Transpose16(rows + p * row_ld + d, row_ld, columns + d * column_ld + p, column_ld);
      }
    }
    for (; d < hd; ++d)
      for (int p = 0; p < positions; ++p) columns[d * column_ld + p] = rows[p * row_ld + d];
  }
};

}  // namespace
}  // namespace tilewright

#include "ops/attention/cpu/attention_tile.h"
#include "ops/attention/cpu/few_vectors_avx512.h"

namespace tilewright {

AttentionFunctions AttentionAvx512() { return {ComputeFewOrMany, MergeSplit}; }
const char* AttentionAvx512Tu() { return TILEWRIGHT_TU; }

}  // namespace tilewright
