#include "artifact/store/handle_table.h"

#include <utility>

namespace tilewright {

HandleTable::HandleTable() {
  tables_.push_back(std::make_unique<Table>(64));
  current_.store(tables_.back().get(), std::memory_order_release);
}

void HandleTable::Put(Table& table, const ArtifactData* data, std::uint64_t hash) {
  std::size_t i = hash & table.mask;
  while (table.slots[i].data.load(std::memory_order_relaxed) != nullptr) i = (i + 1) & table.mask;
  table.slots[i].hash = hash;
  table.slots[i].data.store(data, std::memory_order_release);
}

const ArtifactData* HandleTable::Insert(std::unique_ptr<const HeldArtifact> held) {
  const ArtifactData* const data = &held->data;
  const std::lock_guard lock(mutex_);
  if (const ArtifactData* const there = Find(data->spec)) return there;
  held_.push_back(std::move(held));
  const std::size_t count = size_.load(std::memory_order_relaxed);
  Table* table = tables_.back().get();
  if (2 * (count + 1) > table->slots.size()) {
    auto larger = std::make_unique<Table>(2 * table->slots.size());
    for (const Slot& slot : table->slots) {
      const ArtifactData* const old = slot.data.load(std::memory_order_relaxed);
      if (old != nullptr) Put(*larger, old, slot.hash);
    }
    Put(*larger, data, HashValue(data->spec));
    tables_.push_back(std::move(larger));
    current_.store(tables_.back().get(), std::memory_order_release);
  } else {
    Put(*table, data, HashValue(data->spec));
  }
  size_.store(count + 1, std::memory_order_relaxed);
  return data;
}

}  // namespace tilewright
