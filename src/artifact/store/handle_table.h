#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "artifact/dir/store_dir.h"
#include "core/hash.h"
#include "tilewright/artifact.h"

namespace tilewright {

/// An artifact and the memory that its views point into.
struct HeldArtifact {
  FileBytes file;
  std::string bytes;
  ArtifactData data;
};

/// A hash table from spec to artifact, with open addressing and linear probing. Any number of
/// threads may call Find, without lock or allocation, while one Insert at a time (serialised by a
/// mutex) adds to it: a slot is filled by one release store, and growing publishes a complete
/// table. Nothing is ever removed: artifacts live as long as the object, and so do replaced tables
/// (together smaller than the newest one), so readers need no protection.
class HandleTable {
 public:
  HandleTable();
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  /// nullptr if there is none.
  const ArtifactData* Find(const KernelSpec& spec) const noexcept {
    const Table& table = *current_.load(std::memory_order_acquire);
    const std::uint64_t hash = HashValue(spec);
    for (std::size_t i = hash & table.mask;; i = (i + 1) & table.mask) {
      const Slot& slot = table.slots[i];
      const ArtifactData* const data = slot.data.load(std::memory_order_acquire);
      if (data == nullptr) return nullptr;
      // Compare the hash first: it is in the slot, while the spec is in another cache line.
      if (slot.hash == hash && data->spec == spec) return data;
    }
  }

  /// Returns the artifact of that spec: the one in `held`, or an earlier one, which is kept.
  const ArtifactData* Insert(std::unique_ptr<const HeldArtifact> held);

  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

  /// Held around a fork, so that the child never sees an unfinished Insert.
  std::mutex& writer_mutex() { return mutex_; }

 private:
  struct Slot {
    std::atomic<const ArtifactData*> data{nullptr};
    std::uint64_t hash = 0;  // written before `data` is, never after
  };
  struct Table {
    explicit Table(std::size_t capacity) : mask(capacity - 1), slots(capacity) {}
    std::size_t mask;
    std::vector<Slot> slots;  // at most half full, so that every probe ends
  };

  static void Put(Table& table, const ArtifactData* data, std::uint64_t hash);

  std::atomic<const Table*> current_{nullptr};
  std::atomic<std::size_t> size_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Table>> tables_;  // the newest last
  std::vector<std::unique_ptr<const HeldArtifact>> held_;
};

}  // namespace tilewright
