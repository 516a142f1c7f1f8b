#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "core/hash.h"
#include "engine/op_traits.h"

namespace tilewright {

/// Launch specs in a third of their size: hardly any has a configuration, which takes the most
/// memory, and lookups wait for memory.
template <class Spec>
class SpecList {
 public:
  Spec operator[](std::size_t i) const {
    Spec spec;
    Fill(spec, i);
    return spec;
  }
  /// Makes `spec`, which is new, the one at `i`: lookups build their answer in place.
  [[gnu::always_inline]] void Fill(Spec& spec, std::size_t i) const {
    const Entry& entry = entries_[i];
    spec.kernel = entry.kernel, spec.swizzle = entry.swizzle, spec.splits = entry.splits;
    spec.measured_us = entry.measured_us, spec.predicted_us = entry.predicted_us;
    spec.provisional = entry.provisional;
    if (entry.config != 0) [[unlikely]]
      spec.config = configs_[entry.config - 1];
  }
  auto* KernelAt(std::size_t i) const { return entries_[i].kernel; }
  void Set(std::size_t i, const Spec& spec) { entries_[i] = EntryOf(spec); }
  void Insert(std::size_t at, const Spec& spec) {
    entries_.insert(entries_.begin() + static_cast<std::ptrdiff_t>(at), EntryOf(spec));
  }
  void Erase(std::size_t at) { entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at)); }

 private:
  struct Entry {
    decltype(Spec::kernel) kernel;
    std::int32_t swizzle, splits;
    float measured_us, predicted_us;
    std::uint32_t config;  ///< index + 1 in `configs_`; 0: all zero
    bool provisional;
  };

  Entry EntryOf(const Spec& spec) {
    std::uint32_t config = 0;
    if (spec.config != LaunchConfig{}) {
      const auto found = std::find(configs_.begin(), configs_.end(), spec.config);
      config = static_cast<std::uint32_t>(found - configs_.begin()) + 1;
      if (found == configs_.end()) configs_.push_back(spec.config);
    }
    return {spec.kernel,       spec.swizzle, spec.splits,     spec.measured_us,
            spec.predicted_us, config,       spec.provisional};
  }

  std::vector<Entry> entries_;
  std::vector<LaunchConfig> configs_;  ///< each once; none is ever removed
};

/// Problems that differ in the batch dimension only, sorted by it.
template <class Op>
struct ProblemGroup {
  typename Op::Desc key;  ///< batch 0
  std::vector<std::int32_t> batches;
  SpecList<typename Op::Spec> specs;  ///< parallel to `batches`
  /// Parallel to `batches`: members of an imported line that this version does not know, as JSON.
  std::vector<std::string> extra;

  /// Index of the first batch >= the given one; batches.size() when there is none.
  std::size_t LowerBound(std::int32_t batch) const {
    return static_cast<std::size_t>(std::lower_bound(batches.begin(), batches.end(), batch) -
                                    batches.begin());
  }
};

/// Hash table of groups: open addressing, linear probing, at most half full. Lookups allocate
/// nothing and are inlined entirely: separate calls for hash, probe and copy would add a tenth.
template <class Op>
class GroupTable {
 public:
  using Desc = typename Op::Desc;

  static Desc KeyFor(const Desc& desc) {
    Desc key = desc;
    SetBatch(key, 0);
    return key;
  }

  [[gnu::always_inline]] const ProblemGroup<Op>* Find(const Desc& desc) const {
    if (slots_.empty()) return nullptr;
    const Desc key = KeyFor(desc);
    const Slot* slot = Probe(key, HashOf(key));
    return slot->group == 0 ? nullptr : &groups_[slot->group - 1];
  }

  ProblemGroup<Op>& FindOrAdd(const Desc& desc) {
    if (slots_.size() < 2 * (groups_.size() + 1)) Grow();
    const Desc key = KeyFor(desc);
    const std::uint64_t hash = HashOf(key);
    Slot* slot = const_cast<Slot*>(Probe(key, hash));
    if (slot->group == 0) {
      groups_.push_back(ProblemGroup<Op>{key, {}, {}, {}});
      *slot = Slot{hash, static_cast<std::uint32_t>(groups_.size())};
    }
    return groups_[slot->group - 1];
  }

  ProblemGroup<Op>* FindMutable(const Desc& desc) {
    return const_cast<ProblemGroup<Op>*>(Find(desc));
  }
  const std::vector<ProblemGroup<Op>>& groups() const { return groups_; }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t group = 0;  ///< index + 1; 0 = empty
  };

  // A problem without padding is hashed, and compared, as the bytes it is.
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

  static bool Same(const Desc& a, const Desc& b) {
    if constexpr (std::has_unique_object_representations_v<Desc>) {
      return std::memcmp(&a, &b, sizeof(Desc)) == 0;
    } else {
      return a == b;
    }
  }

  // The slot of `key`, or the empty one where it would go.
  const Slot* Probe(const Desc& key, std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.group == 0 || (slot.hash == hash && Same(groups_[slot.group - 1].key, key)))
        return &slot;
    }
  }

  void Grow() {
    std::vector<Slot> old(std::max<std::size_t>(64, slots_.size() * 2));
    old.swap(slots_);
    const std::size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.group == 0) continue;
      std::size_t i = slot.hash & mask;
      while (slots_[i].group != 0) i = (i + 1) & mask;
      slots_[i] = slot;
    }
  }

  std::vector<ProblemGroup<Op>> groups_;
  std::vector<Slot> slots_;
};

}  // namespace tilewright
