#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <span>

#include "device/cuda/launch.h"

namespace tilewright::cuda {

/// Encoded tensor maps by everything that their encoding reads. Any thread; finding one takes no
/// lock and allocates nothing. Nothing is dropped before the cache is: the weights and the arena of
/// a few models make some hundreds of them, and where it is full, maps are encoded at every launch.
class TensorMapCache {
 public:
  TensorMapCache() = default;
  TensorMapCache(const TensorMapCache&) = delete;
  TensorMapCache& operator=(const TensorMapCache&) = delete;
  ~TensorMapCache();

  using Map = std::array<std::byte, kTensorMapBytes>;
  /// nullptr where it is not there.
  const Map* Find(const TensorMapDesc& desc) const;
  /// Keeps a map, unless another thread has, or there is no room.
  void Insert(const TensorMapDesc& desc, const Map& map);

  static constexpr std::size_t kSlots = 2048;

 private:
  struct Entry {
    TensorMapDesc desc;
    Map map;
  };
  static constexpr std::size_t kProbes = 16;

  std::array<std::atomic<const Entry*>, kSlots> slots_{};
};

}  // namespace tilewright::cuda
