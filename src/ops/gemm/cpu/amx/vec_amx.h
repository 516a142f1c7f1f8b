#pragma once

#include "ops/gemm/cpu/int8/vec512.h"

/// What unpack.h and panel_kernels.h ask of a vector type beyond that of the int8 kernels.

namespace tilewright::gemm_int8 {
namespace {

struct Vec : Vec512 {
  static constexpr bool kWords = false;
  static I CodesOfBytes(I raw) { return raw; }

  /// Every 32-bit word shifted by kBits to the left, or by -kBits to the right.
  template <int kBits>
  static I Shift(I x) {
    if constexpr (kBits > 0) return _mm512_slli_epi32(x, kBits);
    if constexpr (kBits < 0) return _mm512_srli_epi32(x, -kBits);
    return x;
  }
  /// 1.0f with the bits of x under `mask` in its mantissa.
  static F OneWith(I x, std::uint32_t mask) {
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(x, _mm512_set1_epi32(static_cast<int>(mask)),
                                  _mm512_set1_epi32(0x3f800000), 0xea));  // (x & mask) | one
  }
  /// x, with one NaN for all: what rounds to bf16 below adds to its payload, which must not overflow.
  static F Quiet(F x) {
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(x, nan, Set(__builtin_nanf("")));
  }
  /// The upper eight bits of each value: a bf16.
  static F Truncated(F x) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  /// Sixteen pairs of bf16 (even, odd), to nearest, ties away from zero.
  static void StorePairs(std::uint8_t* to, F even, F odd) {
    const I half = _mm512_set1_epi32(0x8000);
    const I low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
    const I high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
    _mm512_storeu_si512(to, _mm512_mask_blend_epi16(0xaaaaaaaau, low, high));
  }
  /// The first `count` of 32 floats as bf16, to nearest even, subnormal ones as zero; zeros for the
  /// others, and for all where `from` is null.
  static void StoreBF16(std::uint8_t* to, const float* from, int count) {
    F low = ZeroF(), high = ZeroF();
    if (from != nullptr && count == 32) {
      low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + 16);
    } else if (from != nullptr) {
      low = LoadPart(from, count < 16 ? count : 16);
      if (count > 16) high = LoadPart(from + 16, count - 16);
    }
    const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
    __builtin_memcpy(to, &both, sizeof both);
  }
};

}  // namespace
}  // namespace tilewright::gemm_int8
