#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakI8Avx512Vnni(int rounds) {
  __m512i sum[kPeakSums];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi8(1);
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512i& s : sum) asm volatile("vpdpbusd %1, %1, %0" : "+v"(s) : "v"(x));
  }
}

}  // namespace tilewright
