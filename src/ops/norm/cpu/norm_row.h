#pragma once

#include "core/convert_row.h"
#include "ops/norm/cpu/norm_cpu.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

/// Squares are summed in four vectors to hide the latency of the addition; with f32 lanes the error
/// of the sum stays near sqrt(cols / (4 kLanes)) units, against which a sum in f64 was not seen to
/// matter (relative error of the result 1e-7 at 8192).
template <class In, class Out>
void NormRow(const void* source, const float* weight, void* target, std::int64_t cols,
             float epsilon) {
  const auto* in = static_cast<const typename In::Type*>(source);
  auto* out = static_cast<typename Out::Type*>(target);
  F32Vec sum[4] = {};
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= cols; c += 4 * kLanes) {
    for (int u = 0; u < 4; ++u) {
      const F32Vec x = In::Load(in + c + u * kLanes);
      sum[u] += x * x;
    }
  }
  for (; c + kLanes <= cols; c += kLanes) {
    const F32Vec x = In::Load(in + c);
    sum[0] += x * x;
  }
  float total = SumLanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
  for (; c < cols; ++c) {
    const float x = In::LoadOne(in + c);
    total += x * x;
  }

  const float scale = 1.0f / __builtin_sqrtf(total / static_cast<float>(cols) + epsilon);
  c = 0;
  for (; c + kLanes <= cols; c += kLanes)
    Out::Store(out + c, In::Load(in + c) * scale * LoadVec(weight + c));
  for (; c < cols; ++c) Out::StoreOne(out + c, In::LoadOne(in + c) * scale * weight[c]);
}

void AddRows(const float* a, const float* b, float* sum, std::int64_t cols) {
  std::int64_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) StoreVec(sum + c, LoadVec(a + c) + LoadVec(b + c));
  for (; c < cols; ++c) sum[c] = a[c] + b[c];
}

constexpr NormImpl MakeNorm(const char* isa, const char* tu, std::uint32_t features, double ns) {
  return {isa,
          tu,
          features,
          ns,
          {{&NormRow<AsF32, AsF32>, &NormRow<AsF32, AsF16>, &NormRow<AsF32, AsBF16>},
           {&NormRow<AsF16, AsF32>, &NormRow<AsF16, AsF16>, &NormRow<AsF16, AsBF16>},
           {&NormRow<AsBF16, AsF32>, &NormRow<AsBF16, AsF16>, &NormRow<AsBF16, AsBF16>}},
          &AddRows};
}

}  // namespace
}  // namespace tilewright
