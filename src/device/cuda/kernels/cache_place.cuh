#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "tilewright/cuda/kv_cache_params.h"

namespace tw {

using tilewright::cuda::KvCacheRows;

/// Offset in elements of head 0 of the place of row `row`; -1 if it has none.
TW_DEVICE i64 CachePlaceOf(const KvCacheRows& cache, int row) {
  const int position = cache.positions[row], slot = cache.slots[row];
  if (position < 0 || position >= cache.context) return -1;
  if (slot < 0 || slot >= cache.slot_count) return -1;
  if (cache.pages == nullptr) return position * cache.position + slot * cache.page;
  const int page = cache.pages[slot * cache.pages_slot + position / cache.page_size];
  if (page < 0 || page >= cache.page_count) return -1;
  return position % cache.page_size * cache.position + page * cache.page;
}

}  // namespace tw
