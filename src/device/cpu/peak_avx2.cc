#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakF32Avx2(int rounds) {
  __m256 sum[kPeakSums];
  for (__m256& s : sum) s = _mm256_setzero_ps();
  const __m256 x = _mm256_set1_ps(1.0f);
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m256& s : sum) asm volatile("vfmadd231ps %1, %1, %0" : "+x"(s) : "x"(x));
  }
}

void PeakI8Avx2(int rounds) {
  constexpr int kSums = kPeakSums / 2;  // each needs a second register
  __m256i sum[kSums];
  for (__m256i& s : sum) s = _mm256_setzero_si256();
  const __m256i x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 6
    for (__m256i& s : sum) {
      __m256i pairs;
      asm volatile("vpmaddubsw %2, %2, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0"
                   : "+x"(s), "=&x"(pairs)
                   : "x"(x), "x"(ones));
    }
  }
}

}  // namespace tilewright
