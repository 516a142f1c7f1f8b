#pragma once

#include <optional>

#include "tilewright/cuda/kv_cache_params.h"
#include "tilewright/rejection.h"
#include "tilewright/tensor.h"

namespace tilewright::cuda {

/// A KV cache and which of its places each row of a launch has: core/paged_cache.h.
struct KvCacheViews {
  TensorView cache;             ///< [head_dim, kv_heads, context, slots], or, with pages,
                                ///< [head_dim, kv_heads, page_size, physical pages]
  TensorView positions, slots;  ///< [rows] int32
  TensorView pages;             ///< [pages of a sequence, slots] int32, or without data
};

/// Why no kernel can write rows [head_dim, kv_heads, rows] there; nullopt if one can.
std::optional<Rejection> CheckKvCache(const KvCacheViews& views, DataType type,
                                      const TensorView& rows);
/// What the kernels take. Precondition: CheckKvCache.
KvCacheRows KvCacheRowsOf(const KvCacheViews& views);

/// Whether packs of `bytes` bytes at multiples of them within a head are aligned at every place.
bool AlignedTo(const KvCacheViews& views, std::int64_t bytes);

}  // namespace tilewright::cuda
