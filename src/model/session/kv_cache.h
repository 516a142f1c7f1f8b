#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewright/device.h"
#include "tilewright/tensor.h"

namespace tilewright {

/// One block's cache: views [head_dim, kv_heads, page_size, pages].
struct KvLayer {
  TensorView k, v;
};

/// Keys and values of many sequences, in pages of a fixed number of positions. Memory is allocated
/// as positions come, and pages that a sequence gives back are reused by the next one that needs
/// some; the whole context of a sequence is never reserved. One thread at a time.
class KvCache {
 public:
  struct Shape {
    std::int32_t layers = 0, kv_heads = 0, head_dim = 0;
    DataType type = DataType::kF16;
    std::int32_t context = 0;    ///< positions that a sequence may have
    std::int32_t slots = 1;      ///< sequences
    std::int32_t page_size = 0;  ///< positions of a page
  };

  /// Errors: kInvalidArgument for a type whose blocks do not divide head_dim; kOutOfMemory where
  /// even the page table does not fit.
  static Result<KvCache> Create(const Shape& shape, Device& device);

  /// The positions that each sequence may have so that the pages of all of them fit into seven eighths
  /// of the device's free memory, the rest being for what passes work on: whole pages, at least one,
  /// and at most shape.context, which is the answer for a device that does not tell its memory.
  static std::int32_t ContextThatFits(const Shape& shape, Device& device);

  /// Gives slot `slot` the pages of positions 0 .. positions - 1 and takes back any beyond them.
  /// What the pages that stay hold is kept. kOutOfMemory leaves every page as it was.
  Status Hold(std::int32_t slot, std::int32_t positions);

  /// Counts the moves of the memory: views that were taken before the last one are stale.
  std::int64_t moves() const { return moves_; }
  /// Makes pages for that many positions available without assigning them to a sequence.
  Status Reserve(std::int32_t positions);
  /// The cache of each layer; without data as long as nothing was held or reserved.
  std::span<const KvLayer> layers() const { return layers_; }

  /// [pages_per_slot, slots]: the page that holds positions i * page_size and on of a slot; -1:
  /// none.
  std::span<const std::int32_t> table() const { return table_; }
  /// Counts the changes of the table.
  std::int64_t table_changes() const { return table_changes_; }
  std::int32_t pages_per_slot() const { return pages_per_slot_; }
  const Shape& shape() const { return shape_; }

  std::int64_t pages_held() const { return pages_ - static_cast<std::int64_t>(free_.size()); }
  /// Held by slots or free.
  std::int64_t pages_allocated() const { return pages_; }
  /// Of all pages allocated.
  std::int64_t bytes() const;
  /// Of one position of one sequence in all layers.
  std::int64_t bytes_per_position() const;

 private:
  KvCache(const Shape& shape, Device& device) : shape_(shape), device_(&device) {}

  /// Of the keys or the values of one layer.
  std::size_t PageBytes() const;
  std::int32_t PagesOf(std::int32_t positions) const;
  /// The pages that fit into `bytes` of the device's memory, while one layer moves.
  std::int64_t PagesIn(std::uint64_t bytes) const;
  /// The pages that the device has room for, those allocated included; nullopt where it does not
  /// tell its memory.
  std::optional<std::int64_t> PagesThatFit() const;
  /// "a context of 4096 positions fits", by PagesThatFit; "" where nothing is known.
  std::string FitText() const;
  /// At least `least` pages in all; more where there is memory, so that growing stays rare.
  Status Grow(std::int64_t least);
  Status GrowTo(std::int64_t pages);
  Status GrowLayer(std::size_t layer, std::int64_t pages);

  Shape shape_;
  Device* device_;
  std::int32_t pages_per_slot_ = 0;
  std::int64_t pages_ = 0;
  std::int64_t moves_ = 0, table_changes_ = 0;
  std::vector<DeviceMemory> memory_;  // [layers]: the pages of keys, then those of values
  std::vector<KvLayer> layers_;
  std::vector<std::int32_t> table_;
  std::vector<std::int32_t> held_;  // [slots]: pages
  std::vector<std::int32_t> free_;
};

}  // namespace tilewright
