#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakF32Avx512(int rounds) {
  __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a,
         k = a, l = a;
  const __m512 x = _mm512_set1_ps(1.0f);
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vfmadd231ps %12, %12, %0\n\tvfmadd231ps %12, %12, %1\n\tvfmadd231ps %12, %12, %2\n\t"
        "vfmadd231ps %12, %12, %3\n\tvfmadd231ps %12, %12, %4\n\tvfmadd231ps %12, %12, %5\n\t"
        "vfmadd231ps %12, %12, %6\n\tvfmadd231ps %12, %12, %7\n\tvfmadd231ps %12, %12, %8\n\t"
        "vfmadd231ps %12, %12, %9\n\tvfmadd231ps %12, %12, %10\n\tvfmadd231ps %12, %12, %11"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j),
          "+v"(k), "+v"(l)
        : "v"(x));
  }
}

void PeakI8Avx512(int rounds) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a, e = a, f = a, g, h, i, j, k, l;
  const __m512i x = _mm512_set1_epi8(1), ones = _mm512_set1_epi16(1);
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vpmaddubsw %12, %12, %6\n\tvpmaddwd %13, %6, %6\n\tvpaddd %6, %0, %0\n\t"
        "vpmaddubsw %12, %12, %7\n\tvpmaddwd %13, %7, %7\n\tvpaddd %7, %1, %1\n\t"
        "vpmaddubsw %12, %12, %8\n\tvpmaddwd %13, %8, %8\n\tvpaddd %8, %2, %2\n\t"
        "vpmaddubsw %12, %12, %9\n\tvpmaddwd %13, %9, %9\n\tvpaddd %9, %3, %3\n\t"
        "vpmaddubsw %12, %12, %10\n\tvpmaddwd %13, %10, %10\n\tvpaddd %10, %4, %4\n\t"
        "vpmaddubsw %12, %12, %11\n\tvpmaddwd %13, %11, %11\n\tvpaddd %11, %5, %5"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "=&v"(g), "=&v"(h), "=&v"(i),
          "=&v"(j), "=&v"(k), "=&v"(l)
        : "v"(x), "v"(ones));
  }
}

}  // namespace tilewright
