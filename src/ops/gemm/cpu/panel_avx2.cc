#include <immintrin.h>

#include "ops/gemm/cpu/panel_layout.h"

namespace tilewright::gemm {
namespace {

constexpr int kTileRows = 6;  // 12 of the 16 registers accumulate
constexpr int kTilePanels = 1;

struct V16 {
  __m256 lo, hi;
};
struct I16 {
  __m256i lo, hi;
};

inline V16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V16 Broadcast(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
inline V16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
// Keeps x in registers: the compiler would rather load weights again for every row.
inline V16 Keep(V16 x) {
  asm("" : "+x"(x.lo), "+x"(x.hi));
  return x;
}
inline void Store(float* p, V16 x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
inline V16 Fma(V16 a, V16 b, V16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline V16 Add(V16 a, V16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline V16 Sub(V16 a, V16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline V16 Mul(V16 a, V16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline V16 Divide(V16 a, V16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline V16 Max(V16 a, V16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline V16 Min(V16 a, V16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline __m128i Load128(const std::uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline __m128i Load64(const std::uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
inline V16 LoadF16(const std::uint8_t* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 16))};
}
// Sixteen pairs of bf16, and the first and the second of each.
inline I16 LoadPairs(const std::uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline V16 EvenBF16(I16 pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs.lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(pairs.hi, 16))};
}
inline V16 OddBF16(I16 pairs) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(pairs.lo, high)),
          _mm256_castsi256_ps(_mm256_and_si256(pairs.hi, high))};
}
inline V16 LoadI8(const std::uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(Load64(p))),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(Load64(p + 8)))};
}
inline I16 LoadU8(const std::uint8_t* p) {
  return {_mm256_cvtepu8_epi32(Load64(p)), _mm256_cvtepu8_epi32(Load64(p + 8))};
}
template <int kBits>
inline I16 ShiftRight(I16 x) {
  return {_mm256_srli_epi32(x.lo, kBits), _mm256_srli_epi32(x.hi, kBits)};
}
template <int kBits>
inline I16 ShiftLeft(I16 x) {
  return {_mm256_slli_epi32(x.lo, kBits), _mm256_slli_epi32(x.hi, kBits)};
}
template <class Block>
inline __m256 LowCodeHalf(__m256i x) {
  constexpr BlockFormat kFormat = Block::kFormat;
  if constexpr (kFormat.has_table) {
    // A permute looks at the low three bits; the fourth selects between two.
    static constexpr LowCodes kCodes = LowCodesOf(kFormat);
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_load_ps(kCodes.value), x);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_load_ps(kCodes.value + 8), x);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(x, 28)));
  } else {
    __m256i q = _mm256_and_si256(x, _mm256_set1_epi32((1 << LowBits(kFormat)) - 1));
    if constexpr (kFormat.zero != 0) q = _mm256_sub_epi32(q, _mm256_set1_epi32(kFormat.zero));
    return _mm256_cvtepi32_ps(q);
  }
}
// LowCodes of the low bits of x.
template <class Block>
inline V16 LowCode(I16 x) {
  return {LowCodeHalf<Block>(x.lo), LowCodeHalf<Block>(x.hi)};
}
template <int kLow, int kMask, int kZero>
inline __m256 LowBitsOrHalf(__m256i low, __m256i top) {
  const __m256i bits = _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(kLow)),
                                       _mm256_and_si256(top, _mm256_set1_epi32(kMask)));
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(bits, _mm256_set1_epi32(kZero)));
}
// float(((low & kLow) | (top & kMask)) - kZero)
template <int kLow, int kMask, int kZero>
inline V16 LowBitsOr(I16 low, I16 top) {
  return {LowBitsOrHalf<kLow, kMask, kZero>(low.lo, top.lo),
          LowBitsOrHalf<kLow, kMask, kZero>(low.hi, top.hi)};
}
inline V16 LowNibble(I16 x) {
  const __m256i mask = _mm256_set1_epi32(15);
  return {_mm256_cvtepi32_ps(_mm256_and_si256(x.lo, mask)),
          _mm256_cvtepi32_ps(_mm256_and_si256(x.hi, mask))};
}
inline I16 RoundToInt(V16 x) { return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)}; }
inline V16 ToFloat(I16 x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }
inline __m256 PowerOfTwoHalf(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline __m256 HalfOfE8M0(__m256i e) {
  // Below 2 they are subnormal, a single bit, and `normal` is 0 or negative; from 2 on it is the larger one.
  const __m256i normal = _mm256_sub_epi32(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(1 << 23));
  const __m256i low = _mm256_add_epi32(_mm256_slli_epi32(e, 21), _mm256_set1_epi32(1 << 21));
  return _mm256_castsi256_ps(_mm256_max_epi32(normal, low));
}
// 2^(e - 128), as HalfOfE8M0 of core/numeric.h.
inline V16 PowersOfTwo(I16 e) { return {HalfOfE8M0(e.lo), HalfOfE8M0(e.hi)}; }
inline V16 PowerOfTwo(I16 n) { return {PowerOfTwoHalf(n.lo), PowerOfTwoHalf(n.hi)}; }

#include "ops/gemm/cpu/panel_kernels.inc"

}  // namespace

const PanelOps& PanelOpsAvx2() { return kOps; }

}  // namespace tilewright::gemm
