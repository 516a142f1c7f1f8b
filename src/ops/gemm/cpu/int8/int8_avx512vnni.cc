#include "ops/gemm/cpu/int8/vec512.h"

namespace tilewright::gemm_int8 {
namespace {

/// vpdpbusd takes unsigned codes and signed activations and never saturates: every sum starts at
/// its correction.
struct Vec : Vec512 {
  static constexpr bool kWords = false;
  static I Dot(I sum, I codes, I x) { return _mm512_dpbusd_epi32(sum, codes, x); }
  /// The same with the four bytes at `x` for all columns, as an operand in memory. Written out because GCC 12 loads
  /// it with an instruction of its own, a third of all: where something else runs on the core, decoding instructions is
  /// what bounds a tile (16384 x 2048 of q4_0, us, before and so: 8 and 12 rows on two threads of a shared Xeon 913 and
  /// 746, 1,184 and 985; 512 rows on 16 threads 9,083 and 7,299).
  static I DotBroadcast(I sum, I codes, const std::uint8_t* x) {
    typedef std::int32_t Word __attribute__((may_alias, aligned(1)));
    asm("vpdpbusd %2%{1to16%}, %1, %0"
        : "+v"(sum)
        : "v"(codes), "m"(*reinterpret_cast<const Word*>(x)));
    return sum;
  }
  static I CodesOfBytes(I raw) { return raw; }
};

}  // namespace
}  // namespace tilewright::gemm_int8

#include "ops/gemm/cpu/int8/micro_kernel.h"

namespace tilewright::gemm_int8 {
const IsaOps& OpsAvx512Vnni() { return kOps; }
}  // namespace tilewright::gemm_int8
