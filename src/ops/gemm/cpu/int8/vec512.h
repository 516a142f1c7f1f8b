#pragma once

// The reductions of g++ 12's header start from an undefined vector on purpose, and the compiler
// warns about its own header.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

/// What the two AVX-512 kernel files share of their vector type: sixteen columns at a time.

namespace tilewright::gemm_int8 {
namespace {

struct Vec512 {
  using F = __m512;
  using I = __m512i;
  static constexpr int kColumns = 16;
  /// 12 rows: 24 accumulators (int32 and f32) leave eight registers for codes, broadcasts and
  /// scales.
  static constexpr int kRows = 12;
  static constexpr int kWholePanelRows = 0;  ///< a vector is a panel
  static constexpr int kAbreast = 4;         ///< panels side by side by which one row is multiplied

  static I Zero() { return _mm512_setzero_si512(); }
  static I Load(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
  static I Broadcast(const void* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
  }
  /// 32-bit lanes shifted by `by` bits, to the right if it is negative. (The vector extension takes
  /// a variable, which is a constant once loops are unrolled.)
  static I ShiftLeft(I x, int by) {
    typedef std::uint32_t Words __attribute__((vector_size(64)));
    const Words words = reinterpret_cast<Words>(x);
    return reinterpret_cast<I>(by >= 0 ? words << by : words >> -by);
  }
  static I Low4(I raw) { return _mm512_and_si512(raw, _mm512_set1_epi8(0x0f)); }
  static I High4(I raw) { return Low4(_mm512_srli_epi32(raw, 4)); }
  /// Low four bits from `low`, the next two from field `field` (bits 2 * field) of `high`.
  static I Join6(I low, I high, int field) {
    const I moved = field == 0   ? _mm512_slli_epi32(high, 4)
                    : field == 1 ? _mm512_slli_epi32(high, 2)
                    : field == 2 ? high
                                 : _mm512_srli_epi32(high, 2);
    return _mm512_ternarylogic_epi32(moved, _mm512_set1_epi8(0x30), low,
                                     0xea);  // (moved & 0x30) | low
  }
  /// Field `field` (two bits, from bit 2 * field) of every byte.
  static I Field2(I raw, int field) {
    return _mm512_and_si512(ShiftLeft(raw, -2 * field), _mm512_set1_epi8(0x03));
  }
  /// Field `odd` or `odd` + 2 of every byte, the latter times 16.
  static I FieldInPlace(I raw, int odd, int high) {
    return _mm512_and_si512(odd != 0 ? _mm512_srli_epi32(raw, 2) : raw,
                            _mm512_set1_epi8(high != 0 ? 0x30 : 0x03));
  }
  /// `low` with bit `bit` of every byte of `bits` as its bit `at`.
  static I JoinBit(I low, I bits, int bit, int at) {
    return _mm512_ternarylogic_epi32(ShiftLeft(bits, at - bit),
                                     _mm512_set1_epi8(static_cast<char>(1 << at)), low, 0xea);
  }
  /// table[code] for every byte of `codes`, below 16.
  static I Lookup(const std::uint8_t (&table)[16], I codes) {
    const __m128i values = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), codes);
  }

  static F ZeroF() { return _mm512_setzero_ps(); }
  static F Set(float value) { return _mm512_set1_ps(value); }
  static F BroadcastF(const float* p) { return _mm512_set1_ps(*p); }
  static F LoadHalf(const std::uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  /// 2^(e - 128), as HalfOfE8M0 of core/numeric.h. Below 2 they are subnormal, a single bit, and
  /// `normal` is 0 or negative; from 2 on it is the larger one.
  static F LoadPowers(const std::uint8_t* p) {
    const I e = LoadBytes(p);
    const I normal = _mm512_sub_epi32(_mm512_slli_epi32(e, 23), _mm512_set1_epi32(1 << 23));
    const I low = _mm512_add_epi32(_mm512_slli_epi32(e, 21), _mm512_set1_epi32(1 << 21));
    return _mm512_castsi512_ps(_mm512_max_epi32(normal, low));
  }
  static F LoadInt8(const std::uint8_t* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static F LoadLowNibbles(const std::uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(LoadBytes(p), _mm512_set1_epi32(15)));
  }
  static F LoadHighNibbles(const std::uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(LoadBytes(p), 4));
  }
  static I LoadBytes(const std::uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F ToFloat(I x) { return _mm512_cvtepi32_ps(x); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Round(F x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F Clamp(F x, float low, float high) {
    return _mm512_max_ps(_mm512_min_ps(x, Set(high)), Set(low));
  }
  static F PowerOfTwo(F n) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
  }
  static F LoadPart(const float* p, int count) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), p);
  }
  static void StorePart(float* p, F x, int count) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1u), x);
  }

  /// Bits of the largest magnitude of 32 floats, compared as integers.
  static std::uint32_t Magnitude(const float* p) {
    const I mask = _mm512_set1_epi32(0x7fffffff);
    const I a = _mm512_and_si512(_mm512_loadu_si512(p), mask);
    const I b = _mm512_and_si512(_mm512_loadu_si512(p + 16), mask);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
  }
  /// q = round to nearest even of p * inverse, and its sums over k 0..15 and 16..31. Zeros when
  /// inverse is 0.
  static void Round(const float* p, float inverse, std::uint8_t* q, std::int32_t& low,
                    std::int32_t& high) {
    I a = Zero(), b = Zero();
    if (inverse != 0.0f) {
      a = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(p), Set(inverse)));
      b = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(p + 16), Set(inverse)));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm512_cvtepi32_epi8(b));
    low = _mm512_reduce_add_epi32(a);
    high = _mm512_reduce_add_epi32(b);
  }

  /// Four blocks at once share the reductions and the divisions: 1.6 times as fast as one by one.
  /// The same operations on every value, so the same bits. `q` of the blocks are `stride` bytes
  /// apart.
  static constexpr bool kFourBlocks = true;
  static void FourBlocks(const float* p, std::uint8_t* q, int stride, float* d, std::int32_t* low,
                         std::int32_t* high) {
    const I mask = _mm512_set1_epi32(0x7fffffff);
    I m[4];
    for (int i = 0; i < 4; ++i) {
      m[i] = _mm512_max_epu32(_mm512_and_si512(_mm512_loadu_si512(p + 32 * i), mask),
                              _mm512_and_si512(_mm512_loadu_si512(p + 32 * i + 16), mask));
    }
    const I m01 =
        _mm512_max_epu32(_mm512_unpacklo_epi32(m[0], m[1]), _mm512_unpackhi_epi32(m[0], m[1]));
    const I m23 =
        _mm512_max_epu32(_mm512_unpacklo_epi32(m[2], m[3]), _mm512_unpackhi_epi32(m[2], m[3]));
    const I all =
        _mm512_max_epu32(_mm512_unpacklo_epi64(m01, m23), _mm512_unpackhi_epi64(m01, m23));
    const __m256i half =
        _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    const __m128i most =
        _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    // ScaleOfI8x32, four at a time: NaN where not finite, zero where tiny.
    const __m128 amax = _mm_castsi128_ps(most);
    const __mmask8 infinite = _mm_cmpge_epu32_mask(most, _mm_set1_epi32(0x7f800000));
    const __mmask8 usable = _mm_cmp_ps_mask(amax, _mm_set1_ps(0x1p-100f), _CMP_GE_OQ) & ~infinite;
    const __m128 scale = _mm_maskz_div_ps(usable, amax, _mm_set1_ps(127.0f));
    const __m128 inverse = _mm_maskz_div_ps(usable, _mm_set1_ps(127.0f), amax);
    _mm_storeu_ps(d, _mm_mask_mov_ps(scale, infinite, _mm_set1_ps(__builtin_nanf(""))));
    alignas(16) float factor[4];
    _mm_store_ps(factor, inverse);

    __m256i sum[4];  // eight sums of four codes: k 0..15 in the lower half
    for (int i = 0; i < 4; ++i) {
      // The factor of a block that is not usable is zero, but zero times infinity is NaN.
      const F f = Set(factor[i]);
      I a = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(p + 32 * i), f));
      I b = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(p + 32 * i + 16), f));
      if (__builtin_expect(infinite != 0, 0) && (infinite >> i & 1) != 0) a = b = Zero();
      const __m256i codes = _mm256_set_m128i(_mm512_cvtepi32_epi8(b), _mm512_cvtepi32_epi8(a));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + static_cast<std::int64_t>(i) * stride),
                          codes);
      sum[i] =
          _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes), _mm256_set1_epi16(1));
    }
    const __m256i s01 = _mm256_add_epi32(_mm256_unpacklo_epi32(sum[0], sum[1]),
                                         _mm256_unpackhi_epi32(sum[0], sum[1]));
    const __m256i s23 = _mm256_add_epi32(_mm256_unpacklo_epi32(sum[2], sum[3]),
                                         _mm256_unpackhi_epi32(sum[2], sum[3]));
    const __m256i total =
        _mm256_add_epi32(_mm256_unpacklo_epi64(s01, s23), _mm256_unpackhi_epi64(s01, s23));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(total));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(total, 1));
  }
};

}  // namespace
}  // namespace tilewright::gemm_int8
