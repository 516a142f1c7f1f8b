#include <immintrin.h>

#include "device/cpu/peak_loops.h"

namespace tilewright {

void PeakBF16Avx512Bf16(int rounds) {
  __m512 sum[kPeakSums];
  for (__m512& s : sum) s = _mm512_setzero_ps();
  const __m512i x = _mm512_setzero_si512();
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512& s : sum) asm volatile("vdpbf16ps %1, %1, %0" : "+v"(s) : "v"(x));
  }
}

}  // namespace tilewright
