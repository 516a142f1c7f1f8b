#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakF32Avx512(int rounds) {
  __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a,
         k = a, l = a;
  const __m512 x = _mm512_loadu_ps(LiveFloats()), y = _mm512_loadu_ps(LiveFloats() + 16);
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vfmadd231ps %12, %13, %0\n\tvfmadd231ps %12, %13, %1\n\tvfmadd231ps %12, %13, %2\n\t"
        "vfmadd231ps %12, %13, %3\n\tvfmadd231ps %12, %13, %4\n\tvfmadd231ps %12, %13, %5\n\t"
        "vfmadd231ps %12, %13, %6\n\tvfmadd231ps %12, %13, %7\n\tvfmadd231ps %12, %13, %8\n\t"
        "vfmadd231ps %12, %13, %9\n\tvfmadd231ps %12, %13, %10\n\tvfmadd231ps %12, %13, %11"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j),
          "+v"(k), "+v"(l)
        : "v"(x), "v"(y));
  }
}

void PeakI8Avx512(int rounds) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a, e = a, f = a, g, h, i, j, k, l;
  const __m512i x = _mm512_loadu_si512(LiveBytes()), y = _mm512_loadu_si512(LiveBytes() + 64),
                ones = _mm512_set1_epi16(1);
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vpmaddubsw %12, %14, %6\n\tvpmaddwd %13, %6, %6\n\tvpaddd %6, %0, %0\n\t"
        "vpmaddubsw %12, %14, %7\n\tvpmaddwd %13, %7, %7\n\tvpaddd %7, %1, %1\n\t"
        "vpmaddubsw %12, %14, %8\n\tvpmaddwd %13, %8, %8\n\tvpaddd %8, %2, %2\n\t"
        "vpmaddubsw %12, %14, %9\n\tvpmaddwd %13, %9, %9\n\tvpaddd %9, %3, %3\n\t"
        "vpmaddubsw %12, %14, %10\n\tvpmaddwd %13, %10, %10\n\tvpaddd %10, %4, %4\n\t"
        "vpmaddubsw %12, %14, %11\n\tvpmaddwd %13, %11, %11\n\tvpaddd %11, %5, %5"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "=&v"(g), "=&v"(h), "=&v"(i),
          "=&v"(j), "=&v"(k), "=&v"(l)
        : "v"(x), "v"(ones), "v"(y));
  }
}

}  // namespace tilewright
