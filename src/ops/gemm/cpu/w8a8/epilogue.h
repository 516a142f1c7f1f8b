#pragma once

#include "core/sigmoid_vec.h"
#include "core/simd.h"
#include "ops/gemm/cpu/w8a8/layout.h"

/// What is done to products before they are D. For kernel files: everything is in an unnamed namespace.

namespace tilewright::gemm_w8a8 {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file

/// As IsaOps::finish.
inline void FinishRows(const Finish& task) {
  static_assert(kColumns % kLanes == 0);
  for (int r = 0; r < task.rows; ++r) {
    const float* from = task.products + r * task.ld;
    const float* c = task.c != nullptr ? task.c + r * task.ldc : nullptr;
    float* d = task.d + r * task.ldd;
    if (!task.gated) {
      for (int i = 0; i < task.columns; ++i) {
        const float value = task.alpha * from[i];
        d[i] = c != nullptr ? value + task.beta * c[i] : value;
      }
      continue;
    }
    for (int first = 0; first < task.columns; first += kColumns) {
      for (int i = first; i < first + kColumns; i += kLanes) {
        const float* pair = from + first + i;
        const F32Vec gate = LoadVec(pair) * task.alpha, up = LoadVec(pair + kColumns) * task.alpha;
        F32Vec value = Silu(gate) * up;
        if (c != nullptr) value = value + LoadVec(c + i) * task.beta;
        StoreVec(d + i, value);
      }
    }
  }
}

}  // namespace
}  // namespace tilewright::gemm_w8a8
