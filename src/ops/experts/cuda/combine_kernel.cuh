#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/silu.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/combine_params.h"

// A thread adds up a pack of a row, in f32 and in the order of the row's experts.

namespace tw {

using tilewright::cuda::CombineParams;

template <Type kType>
struct Combine {
  static constexpr int kPack = tilewright::cuda::kCombinePack;

  const CombineParams& p;

  /// sum += factor * row[c .. c + kPack), as far as the row goes.
  TW_DEVICE void Add(const void* base, i64 row, int c, float factor, float (&sum)[kPack]) const {
    float x[kPack];
    if (p.wide != 0 && c + kPack <= p.cols) {
      LoadPack<kType, kPack>(base, row + c, x);
    } else {
      TW_UNROLL
      for (int i = 0; i < kPack; ++i)
        x[i] = c + i < p.cols ? LoadElement<kType>(base, row + c + i) : 0.0f;
    }
    TW_UNROLL
    for (int i = 0; i < kPack; ++i) sum[i] = Fma(factor, x[i], sum[i]);
  }

  /// Values c .. c + kPack - 1 of row r.
  TW_DEVICE void Run(int r, int c) const {
    if (c >= p.cols) return;
    float sum[kPack] = {};
    const i64 pairs = static_cast<i64>(p.rows) * p.used;
    for (int j = 0; j < p.used; ++j) {
      const int place = p.places[static_cast<i64>(r) * p.used + j];
      if (place < 0 || place >= pairs) continue;  // of no pair
      Add(p.x, place * p.x_stride, c, LoadElement<kType>(p.weights, r * p.weights_stride + j), sum);
    }
    if (p.shared != nullptr) {
      const float gate = LoadElement<kType>(p.gate, r * p.gate_stride);
      Add(p.shared, r * p.shared_stride, c, 1.0f / (1.0f + ExpOf(-gate)), sum);
    }
    const i64 to = r * p.out_stride + c;
    if (p.wide != 0 && c + kPack <= p.cols) {
      StorePack<kType, kPack>(p.out, to, sum);
    } else {
      TW_UNROLL
      for (int i = 0; i < kPack; ++i)
        if (c + i < p.cols) StoreElement<kType>(p.out, to + i, sum[i]);
    }
  }
};

}  // namespace tw
