#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "core/hash.h"
#include "engine/op_traits.h"

namespace tilewright {

/// Problems that differ in the batch dimension only, sorted by it.
template <class Op>
struct Family {
  typename Op::Desc key;  ///< batch 0
  std::vector<std::int32_t> batches;
  std::vector<typename Op::Spec> specs;  ///< beside `batches`
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
template <class Op>
class FamilyTable {
 public:
  using Desc = typename Op::Desc;

  static Desc KeyFor(const Desc& desc) {
    Desc key = desc;
    SetBatch(key, 0);
    return key;
  }

  const Family<Op>* Find(const Desc& desc) const {
    if (slots_.empty()) return nullptr;
    const Desc key = KeyFor(desc);
    const Slot* slot = Probe(key, HashOf(key));
    return slot->family == 0 ? nullptr : &families_[slot->family - 1];
  }

  Family<Op>& FindOrAdd(const Desc& desc) {
    if (slots_.size() < 2 * (families_.size() + 1)) Grow();
    const Desc key = KeyFor(desc);
    const std::uint64_t hash = HashOf(key);
    Slot* slot = const_cast<Slot*>(Probe(key, hash));
    if (slot->family == 0) {
      families_.push_back(Family<Op>{key, {}, {}, {}});
      *slot = Slot{hash, static_cast<std::uint32_t>(families_.size())};
    }
    return families_[slot->family - 1];
  }

  Family<Op>* FindMutable(const Desc& desc) { return const_cast<Family<Op>*>(Find(desc)); }
  const std::vector<Family<Op>>& families() const { return families_; }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t family = 0;  ///< index + 1; 0 = empty
  };

  // A problem without padding is hashed as the bytes it is.
  static std::uint64_t HashOf(const Desc& key) {
    if constexpr (std::has_unique_object_representations_v<Desc>) {
      return HashValue(key);
    } else {
      std::uint64_t hash = 0;
      ForEachField(key, [&hash](std::string_view, const auto& value) {
        hash = HashCombine(hash, static_cast<std::uint64_t>(value));
      });
      return hash;
    }
  }

  // The slot of `key`, or the empty one where it would go.
  const Slot* Probe(const Desc& key, std::uint64_t hash) const {
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

  std::vector<Family<Op>> families_;
  std::vector<Slot> slots_;
};

}  // namespace tilewright
