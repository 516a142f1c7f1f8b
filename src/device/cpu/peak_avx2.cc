#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakF32Avx2(int rounds) {
  __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a,
         k = a, l = a;
  const __m256 x = _mm256_loadu_ps(LiveFloats()), y = _mm256_loadu_ps(LiveFloats() + 8);
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vfmadd231ps %12, %13, %0\n\tvfmadd231ps %12, %13, %1\n\tvfmadd231ps %12, %13, %2\n\t"
        "vfmadd231ps %12, %13, %3\n\tvfmadd231ps %12, %13, %4\n\tvfmadd231ps %12, %13, %5\n\t"
        "vfmadd231ps %12, %13, %6\n\tvfmadd231ps %12, %13, %7\n\tvfmadd231ps %12, %13, %8\n\t"
        "vfmadd231ps %12, %13, %9\n\tvfmadd231ps %12, %13, %10\n\tvfmadd231ps %12, %13, %11"
        : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h), "+x"(i), "+x"(j),
          "+x"(k), "+x"(l)
        : "x"(x), "x"(y));
  }
}

void PeakI8Avx2(int rounds) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g, h, i, j, k, l;
  const __m256i x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  for (int round = 0; round < rounds; ++round) {
    asm volatile(
        "vpmaddubsw %12, %12, %6\n\tvpmaddwd %13, %6, %6\n\tvpaddd %6, %0, %0\n\t"
        "vpmaddubsw %12, %12, %7\n\tvpmaddwd %13, %7, %7\n\tvpaddd %7, %1, %1\n\t"
        "vpmaddubsw %12, %12, %8\n\tvpmaddwd %13, %8, %8\n\tvpaddd %8, %2, %2\n\t"
        "vpmaddubsw %12, %12, %9\n\tvpmaddwd %13, %9, %9\n\tvpaddd %9, %3, %3\n\t"
        "vpmaddubsw %12, %12, %10\n\tvpmaddwd %13, %10, %10\n\tvpaddd %10, %4, %4\n\t"
        "vpmaddubsw %12, %12, %11\n\tvpmaddwd %13, %11, %11\n\tvpaddd %11, %5, %5"
        : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "=&x"(g), "=&x"(h), "=&x"(i),
          "=&x"(j), "=&x"(k), "=&x"(l)
        : "x"(x), "x"(ones));
  }
}

}  // namespace tilewright
