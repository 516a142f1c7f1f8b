#pragma once

#include <cstdint>
#include <string_view>

#include "tilewright/result.h"
#include "tilewright/tensor.h"

namespace tilewright {

/// Where the rows of a KV cache are in memory. Contiguous: [head_dim, kv_heads, context, slots].
/// Paged, if `pages` (int32 [pages per sequence, slots]) has data: [head_dim, kv_heads, page_size,
/// physical pages].
class CachePlaces {
 public:
  CachePlaces(const TensorView& cache, const TensorView& pages)
      : table_(pages.as<const std::int32_t>()),
        page_size_(cache.shape[2]),
        context_(table_ != nullptr ? pages.shape[0] * cache.shape[2] : cache.shape[2]),
        slots_(table_ != nullptr ? pages.shape[1] : cache.shape[3]),
        physical_(cache.shape[3]),
        row_stride_(cache.stride[2]),
        page_stride_(cache.stride[3]),
        table_stride_(pages.stride[1]) {}

  bool paged() const { return table_ != nullptr; }
  std::int64_t context() const { return context_; }  ///< positions of a sequence
  std::int64_t slots() const { return slots_; }
  std::int64_t physical_pages() const { return physical_; }
  /// The physical pages of one sequence; only if paged().
  const std::int32_t* PagesOf(std::int64_t slot) const { return table_ + slot * table_stride_; }

  /// Offset in elements of head 0 at a position, which must be in range.
  std::int64_t Offset(std::int64_t slot, std::int64_t position) const {
    if (table_ == nullptr) return position * row_stride_ + slot * page_stride_;
    return position % page_size_ * row_stride_ +
           PagesOf(slot)[position / page_size_] * page_stride_;
  }

 private:
  const std::int32_t* table_;
  std::int64_t page_size_, context_, slots_, physical_, row_stride_, page_stride_, table_stride_;
};

// Checks of an operation that writes rows into a cache; their messages begin with `what`.

/// The page table, where there is one, is int32 [pages of a sequence, slots].
Status CheckPageTable(std::string_view what, const TensorView& pages);

/// x [head_dim, kv_heads, rows] fits the cache, whose heads and strides are whole blocks.
Status CheckRowsFitCache(std::string_view what, const TensorView& x, const TensorView& cache);

/// Each of `rows` rows is padding, with position -1, or has a place: kInvalidArgument for a
/// position below -1 and for a slot or a physical page that does not exist, kExhausted for a
/// position beyond the context.
struct CacheRows {
  TensorView cache, pages, positions, slots;
};
Status CheckPlaces(std::string_view what, const CacheRows& where, std::int64_t rows);

}  // namespace tilewright
