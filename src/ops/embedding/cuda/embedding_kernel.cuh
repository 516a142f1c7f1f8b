#pragma once

#include "device/cuda/kernels/block_values.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/embedding_params.h"

// Rows of a table by id. The CTAs of a row share it out: eight elements for each of their threads.

namespace tw {

using tilewright::cuda::EmbeddingElements;
using tilewright::cuda::EmbeddingParams;

/// Types: table and out.
template <Type kTypeA, Type kTypeD, int kWarps>
struct Embedding {
  static constexpr int kThreads = kWarps * 32;
  static constexpr bool kBlocks = kIsBlock<kTypeA>;

  const EmbeddingParams& p;
  int row;

  TW_DEVICE void Eight(const u8* entry, int c, float (&x)[8]) const {
    if constexpr (kBlocks) {
      using Values = BlockValues<kTypeA>;
      Values::Eight(entry + static_cast<i64>(c / Values::kBlock) * Values::kBytes,
                    c % Values::kBlock / 8, x);
    } else {
      LoadPack<kTypeA, 8>(entry, c, x);
    }
  }

  /// The row's number for every element where there is no entry: 0 for padding, else NaN.
  TW_DEVICE float Constant(int id) const { return id == -1 ? 0.0f : FloatOf(0x7fffffffu); }

  TW_DEVICE void Run() const {
    const int id = p.ids[row];
    const bool known = id >= 0 && id < p.entries;
    const int elements = EmbeddingElements(kBlocks, p.wide);
    const int item = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
    const i64 c = static_cast<i64>(item) * elements;
    if (c >= p.hidden) return;
    const u8* entry = static_cast<const u8*>(p.table) + (known ? id : 0) * p.table_row_bytes;
    const i64 to = row * p.out_row + c;
    if (elements == 1) {
      if constexpr (!kBlocks) {
        StoreElement<kTypeD>(p.out, to, known ? LoadElement<kTypeA>(entry, c) : Constant(id));
      }
      return;
    }
    // Plain rows need not be whole packs of eight.
    const int n = p.hidden - c < 8 ? static_cast<int>(p.hidden - c) : 8;
    float x[8];
    TW_UNROLL
    for (int i = 0; i < 8; ++i) x[i] = Constant(id);
    if (known && (kBlocks || n == 8)) {
      Eight(entry, static_cast<int>(c), x);
    } else if constexpr (!kBlocks) {
      TW_UNROLL
      for (int i = 0; i < 8; ++i) {
        if (known && i < n) x[i] = LoadElement<kTypeA>(entry, c + i);
      }
    }
    if (p.wide != 0 && n == 8) {
      StorePack<kTypeD, 8>(p.out, to, x);
      return;
    }
    TW_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (i < n) StoreElement<kTypeD>(p.out, to + i, x[i]);
    }
  }
};

}  // namespace tw
