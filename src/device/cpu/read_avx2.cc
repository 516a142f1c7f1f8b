#include <immintrin.h>

#include "device/cpu/read_loops.h"

namespace tilewright {

std::uint64_t ReadWordsAvx2(const std::uint64_t* words, std::int64_t count) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  const auto load = [](const std::uint64_t* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  };
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    a = _mm256_add_epi64(a, load(words + i));
    b = _mm256_add_epi64(b, load(words + i + 4));
    c = _mm256_add_epi64(c, load(words + i + 8));
    d = _mm256_add_epi64(d, load(words + i + 12));
  }
  alignas(32) std::uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes),
                     _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d)));
  std::uint64_t sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
  for (; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace tilewright
