#pragma once

#include "core/simd.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

/// Pairs (i, i + half).
void RotateHalfSplit(const float* in, const float* cosines, const float* sines, float* out,
                     std::int64_t half) {
  std::int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const F32Vec x0 = LoadVec(in + i), x1 = LoadVec(in + half + i);
    const F32Vec c = LoadVec(cosines + i), s = LoadVec(sines + i);
    StoreVec(out + i, x0 * c - x1 * s);
    StoreVec(out + half + i, x0 * s + x1 * c);
  }
  for (; i < half; ++i) {
    const float x0 = in[i], x1 = in[half + i];
    out[i] = x0 * cosines[i] - x1 * sines[i];
    out[half + i] = x0 * sines[i] + x1 * cosines[i];
  }
}

#if defined(__AVX512F__)
#define TILEWRIGHT_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define TILEWRIGHT_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define TILEWRIGHT_ZIP_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define TILEWRIGHT_ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX2__)
#define TILEWRIGHT_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define TILEWRIGHT_ODD 1, 3, 5, 7, 9, 11, 13, 15
#define TILEWRIGHT_ZIP_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define TILEWRIGHT_ZIP_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define TILEWRIGHT_EVEN 0, 2, 4, 6
#define TILEWRIGHT_ODD 1, 3, 5, 7
#define TILEWRIGHT_ZIP_LOW 0, 4, 1, 5
#define TILEWRIGHT_ZIP_HIGH 2, 6, 3, 7
#endif

/// Pairs (2 i, 2 i + 1): two vectors are parted into first and second members, rotated, and zipped
/// again.
void RotateInterleaved(const float* in, const float* cosines, const float* sines, float* out,
                       std::int64_t half) {
  std::int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const F32Vec a = LoadVec(in + 2 * i), b = LoadVec(in + 2 * i + kLanes);
    const F32Vec x0 = __builtin_shufflevector(a, b, TILEWRIGHT_EVEN);
    const F32Vec x1 = __builtin_shufflevector(a, b, TILEWRIGHT_ODD);
    const F32Vec c = LoadVec(cosines + i), s = LoadVec(sines + i);
    const F32Vec y0 = x0 * c - x1 * s, y1 = x0 * s + x1 * c;
    StoreVec(out + 2 * i, __builtin_shufflevector(y0, y1, TILEWRIGHT_ZIP_LOW));
    StoreVec(out + 2 * i + kLanes, __builtin_shufflevector(y0, y1, TILEWRIGHT_ZIP_HIGH));
  }
  for (; i < half; ++i) {
    const float x0 = in[2 * i], x1 = in[2 * i + 1];
    out[2 * i] = x0 * cosines[i] - x1 * sines[i];
    out[2 * i + 1] = x0 * sines[i] + x1 * cosines[i];
  }
}

}  // namespace
}  // namespace tilewright
