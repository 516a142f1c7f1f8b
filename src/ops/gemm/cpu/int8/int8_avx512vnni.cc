#include "ops/gemm/cpu/int8/vec512.h"

namespace tilewright::gemm_int8 {
namespace {

/// vpdpbusd takes unsigned codes and signed activations and never saturates: every sum starts at
/// its correction.
struct Vec : Vec512 {
  static constexpr bool kWords = false;
  static I Dot(I sum, I codes, I x) { return _mm512_dpbusd_epi32(sum, codes, x); }
  static I CodesOfBytes(I raw) { return raw; }
};

}  // namespace
}  // namespace tilewright::gemm_int8

#include "ops/gemm/cpu/int8/micro_kernel.h"

namespace tilewright::gemm_int8 {
const IsaOps& OpsAvx512Vnni() { return kOps; }
}  // namespace tilewright::gemm_int8
