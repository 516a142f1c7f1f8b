#include "device/cuda/tensor_map_cache.h"

#include <memory>

#include "core/hash.h"

namespace tilewright::cuda {
namespace {

std::size_t SlotOf(const TensorMapDesc& desc) {
  std::uint64_t hash = HashCombine(desc.address, static_cast<std::uint64_t>(desc.type) << 16 |
                                                     (desc.swizzled ? 256u : 0u) | desc.rank);
  for (const std::uint64_t dim : desc.dims) hash = HashCombine(hash, dim);
  for (const std::uint64_t stride : desc.strides) hash = HashCombine(hash, stride);
  for (const std::uint32_t box : desc.box) hash = HashCombine(hash, box);
  return hash % TensorMapCache::kSlots;
}

}  // namespace

TensorMapCache::~TensorMapCache() {
  for (const auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
}

const TensorMapCache::Map* TensorMapCache::Find(const TensorMapDesc& desc) const {
  const std::size_t first = SlotOf(desc);
  for (std::size_t i = 0; i < kProbes; ++i) {
    const Entry* entry = slots_[(first + i) % kSlots].load(std::memory_order_acquire);
    if (entry == nullptr) return nullptr;
    if (entry->desc == desc) return &entry->map;
  }
  return nullptr;
}

void TensorMapCache::Insert(const TensorMapDesc& desc, const Map& map) {
  auto made = std::make_unique<const Entry>(Entry{desc, map});
  const std::size_t first = SlotOf(desc);
  for (std::size_t i = 0; i < kProbes; ++i) {
    const Entry* standing = nullptr;
    if (slots_[(first + i) % kSlots].compare_exchange_strong(standing, made.get(),
                                                             std::memory_order_acq_rel)) {
      static_cast<void>(made.release());
      return;
    }
    if (standing->desc == desc) return;
  }
}

}  // namespace tilewright::cuda
