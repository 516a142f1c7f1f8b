#include <immintrin.h>

#include "device/cpu/read_loops.h"

namespace tilewright {

std::uint64_t ReadWordsAvx512(const std::uint64_t* words, std::int64_t count) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    a = _mm512_add_epi64(a, _mm512_loadu_si512(words + i));
    b = _mm512_add_epi64(b, _mm512_loadu_si512(words + i + 8));
    c = _mm512_add_epi64(c, _mm512_loadu_si512(words + i + 16));
    d = _mm512_add_epi64(d, _mm512_loadu_si512(words + i + 24));
  }
  alignas(64) std::uint64_t lanes[8];
  _mm512_store_si512(lanes, _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d)));
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) sum += lane;
  for (; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace tilewright
