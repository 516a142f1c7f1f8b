#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakBF16Avx512Bf16(int rounds) {
  __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a,
         k = a, l = a;
  const __m512i x = _mm512_setzero_si512();
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vdpbf16ps %12, %12, %0\n\tvdpbf16ps %12, %12, %1\n\tvdpbf16ps %12, %12, %2\n\t"
        "vdpbf16ps %12, %12, %3\n\tvdpbf16ps %12, %12, %4\n\tvdpbf16ps %12, %12, %5\n\t"
        "vdpbf16ps %12, %12, %6\n\tvdpbf16ps %12, %12, %7\n\tvdpbf16ps %12, %12, %8\n\t"
        "vdpbf16ps %12, %12, %9\n\tvdpbf16ps %12, %12, %10\n\tvdpbf16ps %12, %12, %11"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j),
          "+v"(k), "+v"(l)
        : "v"(x));
  }
}

}  // namespace tilewright
