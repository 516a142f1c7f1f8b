#include <immintrin.h>

#include <cstdint>

namespace tilewright::gemm_int8 {
namespace {

/// Eight columns at a time: a panel is two lanes. The bounds of the int16 sums are those of
/// int8_avx512.cc.
struct Vec {
  using F = __m256;
  using I = __m256i;
  static constexpr int kColumns = 8;
  static constexpr int kRows = 4;
  static constexpr int kWholePanelRows = 2;
  static constexpr int kAbreast = 2;

  static I Zero() { return _mm256_setzero_si256(); }
  /// `x`, in a register from here on. Of sums g++ would make trees, which take more registers than
  /// there are, and it would load codes for each of their uses anew.
  static I Now(I x) {
    asm("" : "+x"(x));
    return x;
  }
  static I Load(const std::uint8_t* p) {
    return Now(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static I Broadcast(const void* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
  }
  static I ShiftLeft(I x, int by) {
    typedef std::uint32_t Words __attribute__((vector_size(32)));
    const Words words = reinterpret_cast<Words>(x);
    return reinterpret_cast<I>(by >= 0 ? words << by : words >> -by);
  }
  static I Low4(I raw) { return _mm256_and_si256(raw, _mm256_set1_epi8(0x0f)); }
  static I High4(I raw) { return Low4(_mm256_srli_epi32(raw, 4)); }
  static I Join6(I low, I high, int field) {
    const I moved = field == 0   ? _mm256_slli_epi32(high, 4)
                    : field == 1 ? _mm256_slli_epi32(high, 2)
                    : field == 2 ? high
                                 : _mm256_srli_epi32(high, 2);
    return _mm256_or_si256(low, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
  }
  static I Field2(I raw, int field) {
    return _mm256_and_si256(ShiftLeft(raw, -2 * field), _mm256_set1_epi8(0x03));
  }
  static I JoinBit(I low, I bits, int bit, int at) {
    return _mm256_or_si256(low, _mm256_and_si256(ShiftLeft(bits, at - bit),
                                                 _mm256_set1_epi8(static_cast<char>(1 << at))));
  }
  static I Lookup(const std::uint8_t (&table)[16], I codes) {
    const __m128i values = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), codes);
  }

  static constexpr bool kWords = true;
  static I AddWords(I a, I b) { return Now(_mm256_add_epi16(a, b)); }
  static I AddWidened(I sum, I words) {
    return Now(_mm256_add_epi32(sum, _mm256_madd_epi16(words, _mm256_set1_epi16(1))));
  }
  static I Products(I codes, I x) { return _mm256_maddubs_epi16(codes, x); }
  static I CodesOfBytes(I raw) {
    return _mm256_xor_si256(raw, _mm256_set1_epi8(static_cast<char>(0x80)));
  }
  static I SignedProducts(I values, I x) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(values), _mm256_sign_epi8(x, values));
  }

  static F ZeroF() { return _mm256_setzero_ps(); }
  static F Set(float value) { return _mm256_set1_ps(value); }
  static F BroadcastF(const float* p) { return _mm256_broadcast_ss(p); }
  static F LoadHalf(const std::uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  /// 2^(e - 128), as HalfOfE8M0 of core/numeric.h. Below 2 they are subnormal, a single bit, and what
  /// the shift gives is 0 or negative.
  static F LoadPowers(const std::uint8_t* p) {
    const I e = LoadBytes(p);
    const I normal = _mm256_sub_epi32(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(1 << 23));
    const I low = _mm256_add_epi32(_mm256_slli_epi32(e, 21), _mm256_set1_epi32(1 << 21));
    return _mm256_castsi256_ps(_mm256_max_epi32(normal, low));
  }
  static F LoadInt8(const std::uint8_t* p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static F LoadLowNibbles(const std::uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_and_si256(LoadBytes(p), _mm256_set1_epi32(15)));
  }
  static F LoadHighNibbles(const std::uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(LoadBytes(p), 4));
  }
  static I LoadBytes(const std::uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static F ToFloat(I x) { return _mm256_cvtepi32_ps(x); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F Clamp(F x, float low, float high) {
    return _mm256_max_ps(_mm256_min_ps(x, Set(high)), Set(low));
  }
  static F PowerOfTwo(F n) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static I Mask(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F LoadPart(const float* p, int count) { return _mm256_maskload_ps(p, Mask(count)); }
  static void StorePart(float* p, F x, int count) {
    if (count == kColumns) {
      _mm256_storeu_ps(p, x);  // masked stores are slow on some processors
    } else {
      _mm256_maskstore_ps(p, Mask(count), x);
    }
  }

  static constexpr bool kFourBlocks = false;
  static std::uint32_t Magnitude(const float* p) {
    const I mask = _mm256_set1_epi32(0x7fffffff);
    I most = Zero();
    for (int i = 0; i < 32; i += 8) {
      most = _mm256_max_epi32(
          most,
          _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i)), mask));
    }
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(x));
  }
  static std::int32_t Half(const float* p, float inverse, std::uint8_t* q) {
    I a = Zero(), b = Zero();
    if (inverse != 0.0f) {
      a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p), Set(inverse)));
      b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(p + 8), Set(inverse)));
    }
    const I words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(q),
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    const I both = _mm256_add_epi32(a, b);
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1));
    return _mm_cvtsi128_si32(x);
  }
  static void Round(const float* p, float inverse, std::uint8_t* q, std::int32_t& low,
                    std::int32_t& high) {
    low = Half(p, inverse, q);
    high = Half(p + 16, inverse, q + 16);
  }
};

}  // namespace
}  // namespace tilewright::gemm_int8

#include "ops/gemm/cpu/int8/micro_kernel.h"

namespace tilewright::gemm_int8 {
const IsaOps& OpsAvx2() { return kOps; }
}  // namespace tilewright::gemm_int8
