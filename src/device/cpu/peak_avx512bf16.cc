#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakBF16Avx512Bf16(int rounds) {
  __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a,
         k = a, l = a;
  const __m512i x = _mm512_loadu_si512(LiveBF16()), y = _mm512_loadu_si512(LiveBF16() + 32);
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vdpbf16ps %12, %13, %0\n\tvdpbf16ps %12, %13, %1\n\tvdpbf16ps %12, %13, %2\n\t"
        "vdpbf16ps %12, %13, %3\n\tvdpbf16ps %12, %13, %4\n\tvdpbf16ps %12, %13, %5\n\t"
        "vdpbf16ps %12, %13, %6\n\tvdpbf16ps %12, %13, %7\n\tvdpbf16ps %12, %13, %8\n\t"
        "vdpbf16ps %12, %13, %9\n\tvdpbf16ps %12, %13, %10\n\tvdpbf16ps %12, %13, %11"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j),
          "+v"(k), "+v"(l)
        : "v"(x), "v"(y));
  }
}

}  // namespace tilewright
