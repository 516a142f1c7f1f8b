#include "ops/gemm/cpu/int8/vec512.h"

namespace tilewright::gemm_int8 {
namespace {

/// Without VNNI: vpmaddubsw adds two products into int16 with saturation, so each format needs its
/// bound.
struct Vec : Vec512 {
  static I Ones() { return _mm512_set1_epi16(1); }
  /// Codes of at most 15: two products are at most 3,810, and the eight additions of a block
  /// 30,480: all in int16.
  static I Dot4(I sum, I codes, I x) {
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(codes, x));
  }
  static I Start4(const void*) { return Zero(); }
  static I Finish4(I sum) { return _mm512_madd_epi16(sum, Ones()); }
  static I Finish4(I sum, const void* correction) {
    return _mm512_add_epi32(Finish4(sum), Broadcast(correction));
  }
  /// Codes of at most 63: two products are at most 16,002.
  static I Dot6(I sum, I codes, I x) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, x), Ones()));
  }
  static I Start6(const void* correction) { return Broadcast(correction); }
  /// Codes up to 255 would saturate: take value = code - 128, multiply |value| (at most 128) by x
  /// with the sign moved over; two products are at most 32,512. No correction then.
  static I Dot8(I sum, I codes, I x) {
    const I value = _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
    const I moved = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(value), Zero(), x);
    return _mm512_add_epi32(
        sum, _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_abs_epi8(value), moved), Ones()));
  }
  static I Start8(const void*) { return Zero(); }
};

}  // namespace
}  // namespace tilewright::gemm_int8

#include "ops/gemm/cpu/int8/micro_kernel.h"

namespace tilewright::gemm_int8 {
const IsaOps& OpsAvx512() { return kOps; }
}  // namespace tilewright::gemm_int8
