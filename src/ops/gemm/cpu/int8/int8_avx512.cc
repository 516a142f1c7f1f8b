#include "ops/gemm/cpu/int8/vec512.h"

namespace tilewright::gemm_int8 {
namespace {

/// Without VNNI: vpmaddubsw adds two products into int16 with saturation.
struct Vec : Vec512 {
  static constexpr bool kWords = true;
  static I AddWords(I a, I b) { return _mm512_add_epi16(a, b); }
  static I AddWidened(I sum, I words) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(words, _mm512_set1_epi16(1)));
  }
  static I Products(I codes, I x) { return _mm512_maddubs_epi16(codes, x); }
  static I CodesOfBytes(I raw) {
    return _mm512_xor_si512(raw, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  static I SignedProducts(I values, I x) {
    const I moved = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(values), Zero(), x);
    return _mm512_maddubs_epi16(_mm512_abs_epi8(values), moved);
  }
};

}  // namespace
}  // namespace tilewright::gemm_int8

#include "ops/gemm/cpu/int8/micro_kernel.h"

namespace tilewright::gemm_int8 {
const IsaOps& OpsAvx512() { return kOps; }
}  // namespace tilewright::gemm_int8
