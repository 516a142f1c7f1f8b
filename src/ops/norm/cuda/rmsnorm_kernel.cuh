#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "tilewright/cuda/rmsnorm_params.h"

// One CTA a row. Its threads read the row in packs of 16 bytes, keep it in registers while the
// squares are summed, and write the result: one read and one write of memory. A row wider than the
// registers hold is read again.

namespace tw {

using tilewright::cuda::RmsNormCapacity;
using tilewright::cuda::RmsNormParams;

/// Types: in, weight, residual and sum (kNone without a residual), out. kPacks packs of a thread
/// are kept in registers.
template <Type kTypeA, Type kTypeB, Type kTypeC, Type kTypeD, int kWarps, int kPacks>
struct RmsNorm {
  static constexpr bool kAdds = kTypeC != Type::kNone;
  static constexpr Type kTypeSum = kAdds ? kTypeC : kTypeA;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kPack = kTypeA == Type::kF32 ? 4 : 8;  // elements of 16 bytes
  /// Weights are read with the row, or a row would wait for the L2 a second time. Wide rows, which
  /// are many packs to a thread, leave no registers for it; older architectures spill with two.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr int kMostAhead = 1;
#else
  static constexpr int kMostAhead = 2;
#endif
  static constexpr bool kWeightsAhead = kPacks <= kMostAhead && kWarps <= 16;

  const RmsNormParams& p;
  float* scratch;                              // shared, [kWarps]
  i64 in_from, residual_from, sum_to, out_to;  // where the row starts in each view

  TW_DEVICE RmsNorm(const RmsNormParams& params, int row, float* shared)
      : p(params), scratch(shared) {
    const int group = row < p.group_rows ? 0 : row / p.group_rows;
    const i64 line = row - group * p.group_rows;
    in_from = group * p.in_group + line * p.in_stride;
    residual_from = group * p.residual_group + line * p.residual_stride;
    sum_to = group * p.sum_group + line * p.sum_stride;
    out_to = group * p.out_group + line * p.out_stride;
  }

  /// h = h + residual at elements c .. c + kCount - 1, rounded as stored: the same numbers as an
  /// addition and a norm one after the other.
  template <int kCount>
  TW_DEVICE void AddAndStore(int c, const float (&residual)[kCount], float (&h)[kCount]) const {
    TW_UNROLL
    for (int i = 0; i < kCount; ++i) h[i] = RoundTo<kTypeSum>(h[i] + residual[i]);
    StorePack<kTypeSum, kCount>(p.sum, sum_to + c, h);
  }

  template <int kCount>
  TW_DEVICE void Load(int c, float (&h)[kCount]) const {
    LoadPack<kTypeA, kCount>(p.in, in_from + c, h);
    if constexpr (kAdds) {
      float residual[kCount];
      LoadPack<kTypeC, kCount>(p.residual, residual_from + c, residual);
      AddAndStore(c, residual, h);
    }
  }

  /// h again. With kAdds from the sum, which this very thread wrote: the residual may be gone.
  template <int kCount>
  TW_DEVICE void Reload(int c, float (&h)[kCount]) const {
    if constexpr (kAdds) {
      LoadPack<kTypeSum, kCount>(p.sum, sum_to + c, h);
    } else {
      LoadPack<kTypeA, kCount>(p.in, in_from + c, h);
    }
  }

  template <int kCount>
  TW_DEVICE void Store(int c, float scale, const float (&h)[kCount]) const {
    float weight[kCount];
    LoadPack<kTypeB, kCount>(p.weight, c, weight);
    StoreWeighted(c, scale, h, weight);
  }
  template <int kCount>
  TW_DEVICE void StoreWeighted(int c, float scale, const float (&h)[kCount],
                               const float (&weight)[kCount]) const {
    float out[kCount];
    TW_UNROLL
    for (int i = 0; i < kCount; ++i) out[i] = h[i] * scale * weight[i];
    StorePack<kTypeD, kCount>(p.out, out_to + c, out);
  }

  TW_DEVICE float Scale(float squares) const {
    const float total = BlockSum<kWarps>(squares, scratch);
    return InverseRoot(total / static_cast<float>(p.width) + p.epsilon);
  }

  /// First element of this thread's pack i of a row in registers.
  static TW_DEVICE int ColumnOf(int i) {
    return (i * kThreads + static_cast<int>(threadIdx.x)) * kPack;
  }

  TW_DEVICE void InRegisters() const {
    float h[kPacks][kPack], residual[kPacks][kPack], weight[kPacks][kPack];
    // All loads before the first store: the compiler must take a store for one to what is read
    // next.
    TW_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      const int c = ColumnOf(i);
      if (c >= p.width) continue;
      LoadPack<kTypeA, kPack>(p.in, in_from + c, h[i]);
      if constexpr (kAdds) LoadPack<kTypeC, kPack>(p.residual, residual_from + c, residual[i]);
      if constexpr (kWeightsAhead) LoadPack<kTypeB, kPack>(p.weight, c, weight[i]);
    }
    float squares = 0.0f;
    TW_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      const int c = ColumnOf(i);
      if (c >= p.width) continue;
      if constexpr (kAdds) AddAndStore(c, residual[i], h[i]);
      TW_UNROLL
      for (int j = 0; j < kPack; ++j) squares = Fma(h[i][j], h[i][j], squares);
    }
    const float scale = Scale(squares);
    TW_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      const int c = ColumnOf(i);
      if (c >= p.width) continue;
      if constexpr (kWeightsAhead) {
        StoreWeighted(c, scale, h[i], weight[i]);
      } else {
        Store(c, scale, h[i]);
      }
    }
  }

  /// In packs of kCount elements; the width is a multiple of it.
  template <int kCount>
  TW_DEVICE void Twice() const {
    float squares = 0.0f;
    const int first = static_cast<int>(threadIdx.x) * kCount;
    TW_NO_UNROLL
    for (int c = first; c < p.width; c += kThreads * kCount) {
      float h[kCount];
      Load(c, h);
      TW_UNROLL
      for (int j = 0; j < kCount; ++j) squares = Fma(h[j], h[j], squares);
    }
    const float scale = Scale(squares);
    TW_NO_UNROLL
    for (int c = first; c < p.width; c += kThreads * kCount) {
      float h[kCount];
      Reload(c, h);
      Store(c, scale, h);
    }
  }

  TW_DEVICE bool Aligned() const {
    bool aligned = p.width % kPack == 0 &&
                   PacksAligned<kTypeA, kPack>(p.in, p.in_stride | p.in_group) &&
                   PacksAligned<kTypeB, kPack>(p.weight, 0) &&
                   PacksAligned<kTypeD, kPack>(p.out, p.out_stride | p.out_group);
    if constexpr (kAdds) {
      aligned = aligned &&
                PacksAligned<kTypeC, kPack>(p.residual, p.residual_stride | p.residual_group) &&
                PacksAligned<kTypeC, kPack>(p.sum, p.sum_stride | p.sum_group);
    }
    return aligned;
  }

  TW_DEVICE void Run() const {
    if (!Aligned()) {
      Twice<1>();
    } else if (p.width <= RmsNormCapacity(kWarps, kPacks, kTypeA == Type::kF32)) {
      InRegisters();
    } else {
      Twice<kPack>();
    }
  }
};

}  // namespace tw
