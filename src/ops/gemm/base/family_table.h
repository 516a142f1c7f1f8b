#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/hash.h"
#include "tilewright/gemm.h"

namespace tilewright {

/// Problems that differ in the batch dimension only, sorted by it.
struct Family {
  GemmDesc key;  ///< batch 0
  std::vector<std::int32_t> batches;
  std::vector<LaunchSpec> specs;   ///< beside `batches`
  std::vector<std::string> extra;  ///< beside `batches`: members of an imported line that this
                                   ///< version does not know, as JSON

  /// Index of the first batch >= the given one; batches.size() when there is none.
  std::size_t LowerBound(std::int32_t batch) const {
    return static_cast<std::size_t>(std::lower_bound(batches.begin(), batches.end(), batch) -
                                    batches.begin());
  }
};

/// Hash table of families: open addressing, linear probing, at most half full. Lookups allocate
/// nothing.
class FamilyTable {
 public:
  static GemmDesc KeyFor(const GemmDesc& desc) {
    GemmDesc key = desc;
    SetBatch(key, 0);
    return key;
  }

  const Family* Find(const GemmDesc& desc) const {
    if (slots_.empty()) return nullptr;
    const GemmDesc key = KeyFor(desc);
    const Slot* slot = Probe(key, HashValue(key));
    return slot->family == 0 ? nullptr : &families_[slot->family - 1];
  }

  Family& FindOrAdd(const GemmDesc& desc) {
    if (slots_.size() < 2 * (families_.size() + 1)) Grow();
    const GemmDesc key = KeyFor(desc);
    const std::uint64_t hash = HashValue(key);
    Slot* slot = const_cast<Slot*>(Probe(key, hash));
    if (slot->family == 0) {
      families_.push_back(Family{key, {}, {}, {}});
      *slot = Slot{hash, static_cast<std::uint32_t>(families_.size())};
    }
    return families_[slot->family - 1];
  }

  Family* FindMutable(const GemmDesc& desc) { return const_cast<Family*>(Find(desc)); }
  const std::vector<Family>& families() const { return families_; }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t family = 0;  ///< index + 1; 0 = empty
  };

  // The slot of `key`, or the empty one where it would go.
  const Slot* Probe(const GemmDesc& key, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.family == 0 || (slot.hash == hash && families_[slot.family - 1].key == key))
        return &slot;
    }
  }

  void Grow() {
    std::vector<Slot> old(std::max<std::size_t>(64, slots_.size() * 2));
    old.swap(slots_);
    const std::size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.family == 0) continue;
      std::size_t i = slot.hash & mask;
      while (slots_[i].family != 0) i = (i + 1) & mask;
      slots_[i] = slot;
    }
  }

  std::vector<Family> families_;
  std::vector<Slot> slots_;
};

}  // namespace tilewright
