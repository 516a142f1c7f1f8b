#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakF32Avx512(int rounds) {
  __m512 sum[kPeakSums];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  const __m512 x = _mm512_set1_ps(1.0f);
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512& s : sum) asm volatile("vfmadd231ps %1, %1, %0" : "+v"(s) : "v"(x));
  }
}

void PeakI8Avx512(int rounds) {
  constexpr int kSums = kPeakSums / 2;  // each needs a second register
  __m512i sum[kSums];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi8(1), ones = _mm512_set1_epi16(1);
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 6
    for (__m512i& s : sum) {
      __m512i pairs;
      asm volatile("vpmaddubsw %2, %2, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0"
                   : "+v"(s), "=&v"(pairs)
                   : "v"(x), "v"(ones));
    }
  }
}

}  // namespace tilewright
