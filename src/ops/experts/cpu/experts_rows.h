#pragma once

#include "ops/experts/cpu/experts_cpu.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

void RouteRow(const float* logits, int experts, int used, bool normalise, float scale,
              std::int32_t* chosen, float* weights) {
  const auto key = [&](int e) { return logits[e] == logits[e] ? logits[e] : -__builtin_inff(); };
  // A list of the best so far: experts come in ascending order, so an equal one stays behind.
  int count = 0;
  bool finite = true;
  for (int e = 0; e < experts; ++e) {
    const float value = key(e);
    finite = finite && __builtin_fabsf(logits[e]) < __builtin_inff();
    if (count == used && !(value > key(chosen[used - 1]))) continue;
    int at = count < used ? count++ : used - 1;
    for (; at > 0 && key(chosen[at - 1]) < value; --at) chosen[at] = chosen[at - 1];
    chosen[at] = e;
  }
  const float most = logits[chosen[0]];
  float sum = 0;
  if (normalise) {
    for (int j = 0; j < used; ++j) sum += __builtin_expf(logits[chosen[j]] - most);
  } else {
    for (int e = 0; e < experts; ++e) sum += __builtin_expf(logits[e] - most);
  }
  for (int j = 0; j < used; ++j) {
    weights[j] =
        finite ? scale * (__builtin_expf(logits[chosen[j]] - most) / sum) : __builtin_nanf("");
  }
}

void CombineRow(const float* const* rows, const float* weights, int used, const float* shared,
                float factor, std::int64_t cols, float* out) {
  // Blocks stay in the L1 while the rows pass.
  constexpr std::int64_t kBlock = 1024;
  for (std::int64_t first = 0; first < cols; first += kBlock) {
    const std::int64_t last = first + kBlock < cols ? first + kBlock : cols;
    for (std::int64_t i = first; i < last; ++i) out[i] = weights[0] * rows[0][i];
    for (int j = 1; j < used; ++j) {
      const float weight = weights[j];
      const float* const row = rows[j];
      for (std::int64_t i = first; i < last; ++i) out[i] += weight * row[i];
    }
    if (shared == nullptr) continue;
    for (std::int64_t i = first; i < last; ++i) out[i] += factor * shared[i];
  }
}

constexpr ExpertsImpl MakeExperts(const char* isa, const char* tu, std::uint32_t features,
                                  double ns_per_expert, double ns_per_value) {
  return {isa, tu, features, ns_per_expert, ns_per_value, &RouteRow, &CombineRow};
}

}  // namespace
}  // namespace tilewright
