#pragma once

#include "ops/gemm/cpu/amx/tile_ops.h"
#include "ops/gemm/cpu/int8/vec512.h"
#if !defined(__AVX512FP16__)
#include "ops/gemm/cpu/amx/f16_arithmetic.h"
#endif

/// What the ways to unpack and panel_kernels.h ask of a vector type beyond that of the int8 kernels.

namespace tilewright::gemm_int8 {
namespace {

using gemm_amx::TableOrder;

/// The first `count` of 32 floats, zeros for the others, and for all where `from` is null.
struct Floats {
  __m512 low = Vec512::ZeroF(), high = Vec512::ZeroF();
  Floats(const float* from, int count) {
    if (from == nullptr) return;
    if (count == 32) {
      low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + 16);
    } else {
      low = Vec512::LoadPart(from, count < 16 ? count : 16);
      if (count > 16) high = Vec512::LoadPart(from + 16, count - 16);
    }
  }
};

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
  /// Sixteen pairs of bf16 (even, odd), to nearest, ties away from zero. (vcvtne2ps2bf16 is four
  /// operations as well, half of them on the port of shuffles.)
  static I Pairs(F even, F odd) {
    const I half = _mm512_set1_epi32(0x8000);
    const I low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
    const I high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
    return _mm512_mask_blend_epi16(0xaaaaaaaau, low, high);
  }
  static void StorePairs(std::uint8_t* to, F even, F odd) {
    _mm512_storeu_si512(to, Pairs(even, odd));
  }
  /// The first `count` of 32 floats as bf16, to nearest even, subnormal ones as zero; zeros for the
  /// others, and for all where `from` is null.
  static void StoreBF16(std::uint8_t* to, const float* from, int count) {
    const Floats floats(from, count);
    const __m512bh both = _mm512_cvtne2ps_pbh(floats.high, floats.low);
    __builtin_memcpy(to, &both, sizeof both);
  }
  /// The same in QuadOrder, times kQuadsUp.
  static void StoreQuads(std::uint8_t* to, const float* from, int count) {
    const Floats floats(from, count);
    const F up = Set(gemm_amx::kQuadsUp);
    constexpr int kOrder = 0 | 2 << 2 | 1 << 4 | 3 << 6;
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_permute_ps(Mul(floats.high, up), kOrder),
                                              _mm512_permute_ps(Mul(floats.low, up), kOrder));
    __builtin_memcpy(to, &both, sizeof both);
  }

  // 32 words, of f16 where the name says so: two of each column.
  static I SetWords(int word) { return _mm512_set1_epi16(static_cast<short>(word)); }
  static I WordsRight8(I x) { return _mm512_srli_epi16(x, 8); }
  /// The bits of every word under `mask`, and those of `with`.
  static I WordsWith(I x, int mask, int with) {
    return _mm512_ternarylogic_epi32(x, SetWords(mask), SetWords(with), 0xea);  // (x & mask) | with
  }
  /// Sign and magnitude, the magnitude shifted right by 3, to nearest, ties away from zero.
  static I Shorten3(I x) {
    return _mm512_and_si512(_mm512_mulhrs_epi16(x, SetWords(1 << 12)), SetWords(0x8fff));
  }
  /// Whether a word without its sign is above `limit`.
  static bool AnyAbove(I x, int limit) {
    const I magnitude = _mm512_and_si512(x, SetWords(0x7fff));
    return _mm512_cmp_epu16_mask(magnitude, SetWords(limit), _MM_CMPINT_NLE) != 0;
  }
  static void Store(std::uint8_t* to, I x) { _mm512_storeu_si512(to, x); }
  static I Twice(__m256i words) {
    const I each = _mm512_cvtepu16_epi32(words);
    return _mm512_or_si512(each, _mm512_slli_epi32(each, 16));
  }
  /// 16 f16 in memory, each in both words of its column.
  static I TwiceLoadF16(const std::uint8_t* p) {
    return Twice(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  /// 16 floats as f16, to nearest even.
  static I TwiceToF16(F x) {
    return Twice(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#if defined(__AVX512FP16__)
  static I MulF16(I a, I b) { return Bits(_mm512_mul_ph(Halves(a), Halves(b))); }
  static I SubF16(I a, I b) { return Bits(_mm512_sub_ph(Halves(a), Halves(b))); }
  static I FmaF16(I a, I b, I c) { return Bits(_mm512_fmadd_ph(Halves(a), Halves(b), Halves(c))); }
  static __m512h Halves(I x) { return _mm512_castsi512_ph(x); }
  static I Bits(__m512h x) { return _mm512_castph_si512(x); }
#else
  static I MulF16(I a, I b) { return EachWord(gemm_int8::MulF16, a, b); }
  static I SubF16(I a, I b) { return EachWord(gemm_int8::SubF16, a, b); }
  static I FmaF16(I a, I b, I c) { return EachWord(gemm_int8::FmaF16, a, b, c); }
#endif

  /// The nibbles of 16 columns over 32 k (four lines of a panel) by column: column c at
  /// ColumnAt(c), byte t with k = t in its low nibble and k = 16 + t in its high one.
  static constexpr int ColumnAt(int column) { return 64 * (column % 4) + 16 * (column / 4); }
  static void SplitColumns(const std::uint8_t* lines, std::uint8_t* bytes) {
    const I l0 = Load(lines), l1 = Load(lines + 64), l2 = Load(lines + 128), l3 = Load(lines + 192);
    const I low01 = _mm512_unpacklo_epi32(l0, l1), high01 = _mm512_unpackhi_epi32(l0, l1);
    const I low23 = _mm512_unpacklo_epi32(l2, l3), high23 = _mm512_unpackhi_epi32(l2, l3);
    _mm512_store_si512(bytes, _mm512_unpacklo_epi64(low01, low23));
    _mm512_store_si512(bytes + 64, _mm512_unpackhi_epi64(low01, low23));
    _mm512_store_si512(bytes + 128, _mm512_unpacklo_epi64(high01, high23));
    _mm512_store_si512(bytes + 192, _mm512_unpackhi_epi64(high01, high23));
    // Read back in a broadcast each, which takes a load port; GCC would shuffle the registers, and
    // the shuffle port is the busiest (two more operations on it for each column).
    asm volatile("" : : : "memory");
  }
  /// Two rows of a tile, those of columns whose 16 bytes are at `first` and `second`: values of the
  /// nibbles in TableOrder, each from a table of 16, to nearest, ties away from zero.
  static void PutTableRows(F first_table, F second_table, const std::uint8_t* first,
                           const std::uint8_t* second, std::uint8_t* to) {
    const I table = Pairs(first_table, second_table);
    _mm512_storeu_si512(to, TableRow<0>(table, first));
    _mm512_storeu_si512(to + 64, TableRow<1>(table, second));
  }
  /// Word 2 * nibble + kOfPair of `table` for each nibble of 16 bytes: the even bytes' low ones, their
  /// high ones, then the odd bytes'.
  template <int kOfPair>
  static I TableRow(I table, const std::uint8_t* bytes) {
    const I four = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
#if defined(__AVX512VBMI__)
    // By bytes: vpermw is two operations, vpermb is one. For both bytes of a word, the bit of its
    // quarter of the 16 bytes that comes two before the nibble: so it arrives times four.
    alignas(64) static constexpr std::uint8_t kBits[64] = {
        62, 62, 14, 14, 30, 30, 46, 46, 62, 62, 14, 14, 30, 30, 46, 46,  //
        2,  2,  18, 18, 34, 34, 50, 50, 2,  2,  18, 18, 34, 34, 50, 50,  //
        6,  6,  22, 22, 38, 38, 54, 54, 6,  6,  22, 22, 38, 38, 54, 54,  //
        10, 10, 26, 26, 42, 42, 58, 58, 10, 10, 26, 26, 42, 42, 58, 58};
    const I moved = _mm512_multishift_epi64_epi8(_mm512_load_si512(kBits), four);
    const I index = _mm512_ternarylogic_epi32(moved, _mm512_set1_epi8(0x3c),
                                              _mm512_set1_epi16(0x0100 + 0x0202 * kOfPair), 0xea);
    return _mm512_permutexvar_epi8(index, table);
#else
    const I counts =
        _mm512_set_epi64(0x000c000c000c000c, 0x000c000c000c000c, 0x0008000800080008,
                         0x0008000800080008, 0x0004000400040004, 0x0004000400040004, 0, 0);
    const I nibbles = _mm512_and_si512(_mm512_srlv_epi16(four, counts), _mm512_set1_epi16(15));
    const I index =
        _mm512_add_epi16(_mm512_add_epi16(nibbles, nibbles), _mm512_set1_epi16(kOfPair));
    return _mm512_permutexvar_epi16(index, table);
#endif
  }
  /// One step of activations as the B operand of such rows: [16 pairs][16 rows][2] from `rows` rows
  /// of `count` <= 32 floats, rounded as by StoreBF16, zeros beyond.
  static void PackPairs(const float* a, std::int64_t lda, int rows, int count, std::uint8_t* to) {
    alignas(64) std::uint16_t order[32];
    for (int i = 0; i < 32; ++i) order[i] = static_cast<std::uint16_t>(TableOrder(i));
    const I places = _mm512_load_si512(order);
    I lines[16];
    for (int r = 0; r < 16; ++r) {
      alignas(64) std::uint8_t line[64];
      StoreBF16(line, r < rows ? a + r * lda : nullptr, count);
      lines[r] = _mm512_permutexvar_epi16(places, _mm512_load_si512(line));
    }
    Transpose(lines);
    for (int r = 0; r < 16; ++r) _mm512_storeu_si512(to + 64 * r, lines[r]);
  }
  /// to[i][j] = from[j][i], 16 x 16 floats.
  static void TransposeSums(const float* from, float* to) {
    I lines[16];
    for (int r = 0; r < 16; ++r) lines[r] = _mm512_loadu_si512(from + 16 * r);
    Transpose(lines);
    for (int r = 0; r < 16; ++r) _mm512_storeu_si512(to + 16 * r, lines[r]);
  }
  static void Transpose(I (&x)[16]) {
    I y[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
      y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      x[4 * i] = _mm512_unpacklo_epi64(y[4 * i], y[4 * i + 2]);
      x[4 * i + 1] = _mm512_unpackhi_epi64(y[4 * i], y[4 * i + 2]);
      x[4 * i + 2] = _mm512_unpacklo_epi64(y[4 * i + 1], y[4 * i + 3]);
      x[4 * i + 3] = _mm512_unpackhi_epi64(y[4 * i + 1], y[4 * i + 3]);
    }
    // Line 4 i + j now has, in its lane q, column 4 q + j of lines 4 i .. 4 i + 3.
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      y[j] = _mm512_shuffle_i32x4(x[j], x[4 + j], 0x88);
      y[4 + j] = _mm512_shuffle_i32x4(x[j], x[4 + j], 0xdd);
      y[8 + j] = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x88);
      y[12 + j] = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xdd);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      x[j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0x88);
      x[8 + j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0xdd);
      x[4 + j] = _mm512_shuffle_i32x4(y[4 + j], y[12 + j], 0x88);
      x[12 + j] = _mm512_shuffle_i32x4(y[4 + j], y[12 + j], 0xdd);
    }
  }
};

}  // namespace
}  // namespace tilewright::gemm_int8
