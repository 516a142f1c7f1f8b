#include "ops/gemm/cpu/int8/vec512.h"

namespace tilewright::gemm_int8 {
namespace {

/// vpdpbusd takes unsigned codes and signed activations and never saturates: every sum starts at
/// its correction.
struct Vec : Vec512 {
  static I Dot4(I sum, I codes, I x) { return _mm512_dpbusd_epi32(sum, codes, x); }
  static I Dot6(I sum, I codes, I x) { return _mm512_dpbusd_epi32(sum, codes, x); }
  static I Dot8(I sum, I codes, I x) { return _mm512_dpbusd_epi32(sum, codes, x); }
  static I Start4(const void* correction) { return Broadcast(correction); }
  static I Start6(const void* correction) { return Broadcast(correction); }
  static I Start8(const void* correction) { return Broadcast(correction); }
  static I Finish4(I sum) { return sum; }
  static I Finish4(I sum, const void*) { return sum; }
};

}  // namespace
}  // namespace tilewright::gemm_int8

#include "ops/gemm/cpu/int8/micro_kernel.h"

namespace tilewright::gemm_int8 {
const IsaOps& OpsAvx512Vnni() { return kOps; }
}  // namespace tilewright::gemm_int8
