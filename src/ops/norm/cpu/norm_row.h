#pragma once

#include "core/simd.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

/// Squares are summed in four vectors to hide the latency of the addition; with f32 lanes the error
/// of the sum stays near sqrt(cols / (4 kLanes)) units, against which a sum in f64 was not seen to
/// matter (relative error of the result 1e-7 at 8192).
void NormRow(const float* in, const float* weight, float* out, std::int64_t cols, float epsilon) {
  F32Vec sum[4] = {};
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= cols; c += 4 * kLanes) {
    for (int u = 0; u < 4; ++u) {
      const F32Vec x = LoadVec(in + c + u * kLanes);
      sum[u] += x * x;
    }
  }
  for (; c + kLanes <= cols; c += kLanes) {
    const F32Vec x = LoadVec(in + c);
    sum[0] += x * x;
  }
  float total = SumLanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
  for (; c < cols; ++c) total += in[c] * in[c];

  const float scale = 1.0f / __builtin_sqrtf(total / static_cast<float>(cols) + epsilon);
  c = 0;
  for (; c + kLanes <= cols; c += kLanes)
    StoreVec(out + c, LoadVec(in + c) * scale * LoadVec(weight + c));
  for (; c < cols; ++c) out[c] = in[c] * scale * weight[c];
}

}  // namespace
}  // namespace tilewright
