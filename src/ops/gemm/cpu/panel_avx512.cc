#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the deliberately undefined source operand of its own AVX-512 intrinsics for a
// mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include "ops/gemm/cpu/panel_layout.h"

namespace tilewright::gemm {
namespace {

constexpr int kTileRows = 12;  // 24 of the 32 registers accumulate
constexpr int kTilePanels = 2;

struct V16 {
  __m512 v;
};
struct I16 {
  __m512i v;
};

inline V16 Zero() { return {_mm512_setzero_ps()}; }
inline V16 Broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline V16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
// Keeps x in a register: the compiler would rather load weights again for every row.
inline V16 Keep(V16 x) {
  asm("" : "+v"(x.v));
  return x;
}
inline void Store(float* p, V16 x) { _mm512_storeu_ps(p, x.v); }
inline V16 Fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V16 Add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V16 Sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V16 Mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V16 Divide(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V16 Max(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline V16 Min(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline V16 LoadF16(const std::uint8_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// Sixteen pairs of bf16, and the first and the second of each.
inline I16 LoadPairs(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline V16 EvenBF16(I16 pairs) { return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs.v, 16))}; }
inline V16 OddBF16(I16 pairs) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm512_castsi512_ps(_mm512_and_si512(pairs.v, high))};
}
inline V16 LoadI8(const std::uint8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline I16 LoadU8(const std::uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
template <int kBits>
inline I16 ShiftRight(I16 x) {
  return {_mm512_srli_epi32(x.v, kBits)};
}
template <int kBits>
inline I16 ShiftLeft(I16 x) {
  return {_mm512_slli_epi32(x.v, kBits)};
}
// LowCodes of the low bits of x: the permute looks at the low four bits only.
template <class Block>
inline V16 LowCode(I16 x) {
  static constexpr LowCodes kCodes = LowCodesOf(Block::kFormat);
  return {_mm512_permutexvar_ps(x.v, _mm512_load_ps(kCodes.value))};
}
// float(((low & kLow) | (top & kMask)) - kZero)
template <int kLow, int kMask, int kZero>
inline V16 LowBitsOr(I16 low, I16 top) {
  const __m512i bits = _mm512_or_si512(_mm512_and_si512(low.v, _mm512_set1_epi32(kLow)),
                                       _mm512_and_si512(top.v, _mm512_set1_epi32(kMask)));
  return {_mm512_cvtepi32_ps(_mm512_sub_epi32(bits, _mm512_set1_epi32(kZero)))};
}
inline V16 LowNibble(I16 x) {
  return {_mm512_cvtepi32_ps(_mm512_and_si512(x.v, _mm512_set1_epi32(15)))};
}
inline I16 RoundToInt(V16 x) { return {_mm512_cvtps_epi32(x.v)}; }
inline V16 ToFloat(I16 x) { return {_mm512_cvtepi32_ps(x.v)}; }
// 2^(e - 128), as HalfOfE8M0 of core/numeric.h. Below 2 they are subnormal, a single bit, and
// `normal` is 0 or negative; from 2 on it is the larger one.
inline V16 PowersOfTwo(I16 e) {
  const __m512i normal = _mm512_sub_epi32(_mm512_slli_epi32(e.v, 23), _mm512_set1_epi32(1 << 23));
  const __m512i low = _mm512_add_epi32(_mm512_slli_epi32(e.v, 21), _mm512_set1_epi32(1 << 21));
  return {_mm512_castsi512_ps(_mm512_max_epi32(normal, low))};
}
inline V16 PowerOfTwo(I16 n) {
  return {
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23))};
}

#include "ops/gemm/cpu/panel_kernels.inc"

}  // namespace

const PanelOps& PanelOpsAvx512() { return kOps; }

}  // namespace tilewright::gemm
