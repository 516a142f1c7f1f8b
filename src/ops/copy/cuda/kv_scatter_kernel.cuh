#pragma once

#include "device/cuda/kernels/cache_place.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/kv_scatter_params.h"

// Rows of keys or values into a KV cache. The CTAs of a row share out its heads.

namespace tw {

using tilewright::cuda::KvScatterParams;

/// Types: x and the cache.
template <Type kTypeA, Type kTypeC, int kWarps>
struct KvScatter {
  static constexpr int kThreads = kWarps * 32;

  const KvScatterParams& p;
  int row;

  template <int kCount>
  TW_DEVICE void Elements(i64 place) const {
    const int items = p.head_dim / kCount;
    const int item = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
    const int head = item / items, c = item % items * kCount;
    if (head >= p.heads) return;
    float x[kCount];
    LoadPack<kTypeA, kCount>(p.x, row * p.x_row + head * p.x_head + c, x);
    StorePack<kTypeC, kCount>(p.cache.data, place + head * p.cache.head + c, x);
  }

  TW_DEVICE void Run() const {
    const i64 place = CachePlaceOf(p.cache, row);
    if (place < 0) return;
    if (p.wide != 0) {
      Elements<8>(place);
    } else {
      Elements<1>(place);
    }
  }
};

}  // namespace tw
