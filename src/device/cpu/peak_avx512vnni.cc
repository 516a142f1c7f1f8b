#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakI8Avx512Vnni(int rounds) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a,
          k = a, l = a;
  const __m512i x = _mm512_loadu_si512(LiveBytes()), y = _mm512_loadu_si512(LiveBytes() + 64);
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vpdpbusd %12, %13, %0\n\tvpdpbusd %12, %13, %1\n\tvpdpbusd %12, %13, %2\n\t"
        "vpdpbusd %12, %13, %3\n\tvpdpbusd %12, %13, %4\n\tvpdpbusd %12, %13, %5\n\t"
        "vpdpbusd %12, %13, %6\n\tvpdpbusd %12, %13, %7\n\tvpdpbusd %12, %13, %8\n\t"
        "vpdpbusd %12, %13, %9\n\tvpdpbusd %12, %13, %10\n\tvpdpbusd %12, %13, %11"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j),
          "+v"(k), "+v"(l)
        : "v"(x), "v"(y));
  }
}

}  // namespace tilewright
