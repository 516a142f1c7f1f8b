#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakI8Avx512Vnni(int rounds) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a,
          k = a, l = a;
  const __m512i x = _mm512_set1_epi8(1);
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vpdpbusd %12, %12, %0\n\tvpdpbusd %12, %12, %1\n\tvpdpbusd %12, %12, %2\n\t"
        "vpdpbusd %12, %12, %3\n\tvpdpbusd %12, %12, %4\n\tvpdpbusd %12, %12, %5\n\t"
        "vpdpbusd %12, %12, %6\n\tvpdpbusd %12, %12, %7\n\tvpdpbusd %12, %12, %8\n\t"
        "vpdpbusd %12, %12, %9\n\tvpdpbusd %12, %12, %10\n\tvpdpbusd %12, %12, %11"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j),
          "+v"(k), "+v"(l)
        : "v"(x));
  }
}

}  // namespace tilewright
