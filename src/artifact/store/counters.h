#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "tilewright/artifact_store.h"

namespace tilewright {

/// ArtifactCounters holds only counters, so a counter's number in a file (StoreDir::Count) is its
/// position in that struct. New ones are added at the end; none is ever removed.
inline constexpr std::size_t kCounterCount = sizeof(ArtifactCounters) / sizeof(std::uint64_t);
static_assert(std::is_trivially_copyable_v<ArtifactCounters>);
static_assert(std::has_unique_object_representations_v<ArtifactCounters>);

/// Number of the counter `member`: CounterIndex(&ArtifactCounters::compiles).
inline std::size_t CounterIndex(std::uint64_t ArtifactCounters::*member) {
  static const ArtifactCounters kOrigin{};
  const auto* base = reinterpret_cast<const std::byte*>(&kOrigin);
  const auto* field = reinterpret_cast<const std::byte*>(&(kOrigin.*member));
  return static_cast<std::size_t>(field - base) / sizeof(std::uint64_t);
}
inline std::size_t HitIndex(ArtifactLayer layer) {
  return offsetof(ArtifactCounters, hits) / 8 + static_cast<std::size_t>(layer);
}
inline std::size_t MissIndex(ArtifactLayer layer, MissReason reason) {
  return offsetof(ArtifactCounters, misses) / 8 + 5 * static_cast<std::size_t>(layer) +
         static_cast<std::size_t>(reason);
}

/// The struct made from numbers in order; missing ones are zero, extra ones (of a newer version)
/// are ignored.
inline ArtifactCounters CountersFrom(std::span<const std::uint64_t> numbers) {
  ArtifactCounters counters;
  std::memcpy(static_cast<void*>(&counters), numbers.data(),
              std::min(numbers.size(), kCounterCount) * sizeof(std::uint64_t));
  return counters;
}

/// The counters of this process. Any thread.
class CounterSet {
 public:
  void Add(std::size_t counter, std::uint64_t amount) {
    values_[counter].fetch_add(amount, std::memory_order_relaxed);
  }
  ArtifactCounters Get() const {
    std::array<std::uint64_t, kCounterCount> numbers;
    for (std::size_t i = 0; i < kCounterCount; ++i) {
      numbers[i] = values_[i].load(std::memory_order_relaxed);
    }
    return CountersFrom(numbers);
  }

 private:
  std::array<std::atomic<std::uint64_t>, kCounterCount> values_{};
};

}  // namespace tilewright
