#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>
#include <map>
#include <vector>

#include "device/cuda/kernels/mma_emulation.h"

// For tests only: mbarrier.cuh, tma.cuh and wgmma.cuh on the CPU, beside mma_emulation.h. Loads and
// products happen at once, so a missing wait for wgmma does not show; a missing, early or surplus
// arrival does. Stores by TMA happen as late as they may, when they are waited for, so a missing
// wait shows. A tensor map is a HostTensorMap.

namespace tw::emulation {

struct Barrier {
  int arrivals = 0;  // of a phase
  int missing = 0;
  std::int64_t bytes_missing = 0;
  u32 parity = 0;  // of the phase under way
};
inline std::map<u32, Barrier> barriers;

inline void Progress(u32 address, int arrivals, std::int64_t bytes) {
  Barrier& barrier = barriers[address];
  barrier.missing -= arrivals;
  barrier.bytes_missing += bytes;
  fault = fault || barrier.missing < 0;
  if (barrier.missing == 0 && barrier.bytes_missing == 0) {
    barrier.parity ^= 1;
    barrier.missing = barrier.arrivals;
  }
}

/// Of one number of a CTA: who is there, and how often all were.
struct NamedBarrierState {
  u32 here = 0;
  u32 rounds = 0;
};
inline NamedBarrierState named_barriers[8 * 16];  // 16 of every CTA of a cluster
inline NamedBarrierState& NamedBarrierOf(u32 barrier) {
  return named_barriers[16 * cta.rank + barrier];
}

/// A store by TMA that was started.
struct StartedStore {
  const void* map;
  u32 smem;
  int x, y;
};
/// Of one thread: the group that is open, and those that were not waited for, oldest first.
struct StoreGroups {
  std::vector<StartedStore> open;
  std::deque<std::vector<StartedStore>> pending;
};
inline std::map<std::size_t, StoreGroups> store_groups;

/// Of each thread: two strips.
inline float accumulators[8 * 384][2][128];  // eight CTAs of 12 warps

/// Where the 128-byte swizzle keeps the byte at `address`.
inline u32 Swizzled(u32 address) { return address ^ (address >> 7 & 7) << 4; }

}  // namespace tw::emulation

namespace tw {

/// What a tensor map says of a matrix, lines of `size[0]` elements.
struct HostTensorMap {
  u8* base = nullptr;
  i64 size[2] = {};
  i64 stride = 0;  // elements from line to line
  int box[2] = {};
  int bytes = 2;  // of an element
  bool swizzled = true;
};

inline void MbarrierInit(u32 barrier, u32 arrivals) {
  emulation::Legal(barrier, 8);
  const int count = static_cast<int>(arrivals);
  emulation::barriers[barrier] = {.arrivals = count, .missing = count};
}
inline void FenceBarrierInit() {}
inline void MbarrierArrive(u32 barrier) { emulation::Progress(barrier, 1, 0); }
inline void MbarrierArriveExpectTx(u32 barrier, u32 bytes) {
  emulation::Progress(barrier, 1, bytes);
}

inline void ClusterSync() { emulation::Yield(); }
inline u32 ClusterCtaRank() { return emulation::cta.rank; }
/// The address in the cluster's memory of what lies in CTA `cta` where `smem` lies in this one. As on a
/// GPU, which CTA an address means is part of it.
inline u32 ClusterAddress(u32 smem, u32 cta) {
  return static_cast<u32>(smem + emulation::SmemBegin(cta) -
                          emulation::SmemBegin(emulation::cta.rank));
}
inline void MbarrierArriveCluster(u32 barrier, u32 cta) {
  const u32 remote = ClusterAddress(barrier, cta);
  emulation::SharedOf(cta, remote, 8);
  emulation::Progress(remote, 1, 0);
}

inline void MbarrierWait(u32 barrier, u32 parity) {
  // A product that hangs on a GPU ends here as a wrong one.
  for (int turns = 0; emulation::barriers[barrier].parity == parity; ++turns) {
    if (emulation::fault || turns > 5000) {
      emulation::fault = true;
      return;
    }
    emulation::Yield();
  }
}

/// The bytes are there at once; they count at the barrier like those of TMA.
inline void BulkCopyOnce(u32 smem, const void* global, u32 bytes, u32 barrier, u64 policy) {
  const u8* from = static_cast<const u8*>(global);
  const bool legal = policy == ReadOncePolicy() && bytes % 16 == 0 &&
                     emulation::Legal(reinterpret_cast<u64>(global), 16) &&
                     emulation::Readable(from, static_cast<int>(bytes));
  emulation::fault = emulation::fault || !legal;
  if (!legal) return;
  for (u32 i = 0; i < bytes; i += 16) std::memcpy(emulation::Shared(smem + i, 16), from + i, 16);
  emulation::Progress(barrier, 0, -static_cast<std::int64_t>(bytes));
}

inline void BulkCopy(u32 smem, const void* global, u32 bytes, u32 barrier) {
  BulkCopyOnce(smem, global, bytes, barrier, ReadOncePolicy());
}

inline void TmaPrefetchMap(const void*) {}
/// Copies the box at (x, y) to shared memory or, if `store`, from there. Elements outside of the
/// tensor read as zero; chunks of 16 bytes outside of it are not written.
inline void CopyBox(const HostTensorMap& map, u32 smem, int x, int y, bool store) {
  const int line_bytes = map.box[0] * map.bytes;
  const bool legal = map.swizzled ? emulation::Legal(smem, 1024) && line_bytes == 128
                                  : emulation::Legal(smem, 128) && line_bytes % 16 == 0 &&
                                        x * map.bytes % 16 == 0 && !store;
  if (!legal) {
    emulation::fault = true;
    return;
  }
  const auto bytes = static_cast<std::size_t>(map.bytes);
  for (int line = 0; line < map.box[1]; ++line) {
    for (int i = 0; i < map.box[0]; ++i) {
      const int chunk = 16 / map.bytes;
      const int column = x + (store ? i / chunk * chunk : i);
      const bool inside = column < map.size[0] && y + line < map.size[1];
      const u32 at = smem + static_cast<u32>(line * line_bytes + i * map.bytes);
      u8* shared = emulation::Shared(map.swizzled ? emulation::Swizzled(at) : at, bytes);
      u8* global = map.base + ((y + line) * map.stride + x + i) * map.bytes;
      if (store && inside) std::memcpy(global, shared, bytes);
      if (!store && inside) std::memcpy(shared, global, bytes);
      if (!store && !inside) std::memset(shared, 0, bytes);
    }
  }
}
inline void TmaLoad2D(u32 smem, const void* map, u32 barrier, int x, int y) {
  const HostTensorMap& tensor = *static_cast<const HostTensorMap*>(map);
  CopyBox(tensor, smem, x, y, false);
  emulation::Progress(barrier, 0, -tensor.box[0] * tensor.bytes * tensor.box[1]);
}

inline void TmaLoad2DMulticast(u32 smem, const void* map, u32 barrier, int x, int y, u16 ctas) {
  const unsigned int sender = emulation::cta.rank;
  const std::size_t begin = emulation::SmemBegin(sender);
  for (unsigned int rank = 0; rank < 16; ++rank) {
    if ((ctas >> rank & 1) == 0) continue;
    const auto there = [&](u32 address) {
      return static_cast<u32>(address - begin + emulation::SmemBegin(rank));
    };
    emulation::cta.rank = rank;  // whose memory it is
    TmaLoad2D(there(smem), map, there(barrier), x, y);
  }
  emulation::cta.rank = sender;
}

inline void FenceBeforeTma() {}
inline void FenceGlobalBeforeTma() {}
inline void TmaStore2D(const void* map, u32 smem, int x, int y) {
  emulation::store_groups[emulation::cta.current].open.push_back({map, smem, x, y});
}
inline void TmaStoreCommit() {
  emulation::StoreGroups& groups = emulation::store_groups[emulation::cta.current];
  groups.pending.push_back(std::move(groups.open));
  groups.open.clear();
}
template <int kPending>
void TmaStoreWaitRead() {
  auto& pending = emulation::store_groups[emulation::cta.current].pending;
  for (; pending.size() > kPending; pending.pop_front()) {
    for (const emulation::StartedStore& store : pending.front()) {
      CopyBox(*static_cast<const HostTensorMap*>(store.map), store.smem, store.x, store.y, true);
    }
  }
}

inline void NamedBarrier(u32 barrier, u32 threads) {
  emulation::NamedBarrierState& state = emulation::NamedBarrierOf(barrier);
  const u32 round = state.rounds;
  if (++state.here == threads) {
    state.here = 0;
    ++state.rounds;
  }
  for (int turns = 0; state.rounds == round; ++turns) {
    if (emulation::fault || turns > 5000) {
      emulation::fault = true;
      return;
    }
    emulation::Yield();
  }
}

inline void NamedBarrierArrive(u32 barrier, u32 threads) {
  emulation::NamedBarrierState& state = emulation::NamedBarrierOf(barrier);
  if (++state.here == threads) {
    state.here = 0;
    ++state.rounds;
  }
}

inline u64 WgmmaDescriptor(u32 smem, u32 leading_bytes, u32 stride_bytes) {
  return static_cast<u64>((smem & 0x3ffff) >> 4) | static_cast<u64>(leading_bytes >> 4) << 16 |
         static_cast<u64>(stride_bytes >> 4) << 32 | static_cast<u64>(1) << 62;
}
inline void WgmmaFence() {}
inline void WgmmaCommit() {}
template <int kPending>
void WgmmaWait() {}
template <int kRegisters>
void RegistersRaise() {}
template <int kRegisters>
void RegistersLower() {}

/// Element (row, k) of the matrix that `descriptor` describes.
template <Type kType>
float WgmmaElement(u64 descriptor, int transposed, int row, int k) {
  const auto field = [&](int shift) { return static_cast<u32>(descriptor >> shift & 0x3fff) << 4; };
  // It has 18 bits of an address, and means the memory of its own CTA.
  u32 begin = field(0);
  while (begin < emulation::SmemBegin(emulation::cta.rank)) begin += 1 << 18;
  u16 value;
  if (descriptor >> 62 == 0) {  // no swizzle, K-major
    const u32 from = begin + static_cast<u32>(row / 8) * field(32) +
                     static_cast<u32>(k / 8) * field(16) +
                     static_cast<u32>(row % 8 * 16 + k % 8 * 2);
    std::memcpy(&value, emulation::Shared(from, 2), 2);
    return LowToF32<kType>(value);
  }
  const u32 lines =
      transposed != 0 ? static_cast<u32>(row / 64) * field(16) + static_cast<u32>(k / 8) * field(32)
                      : static_cast<u32>(row / 8) * field(32);
  const int within = transposed != 0 ? k % 8 * 128 + row % 64 * 2 : row % 8 * 128 + k * 2;
  const u32 at = emulation::Swizzled(begin + lines + static_cast<u32>(within));
  std::memcpy(&value, emulation::Shared(at, 2), 2);
  return LowToF32<kType>(value);
}

inline void WgmmaDeclareAccumulators() {
  for (auto& strip : emulation::accumulators[emulation::cta.current]) {
    std::fill(std::begin(strip), std::end(strip), std::numeric_limits<float>::quiet_NaN());
  }
}

template <Type kType, int kN, int kTransA, int kTransB, int kStrip>
void Wgmma(u64 a, u64 b, int accumulate) {
  float* d = emulation::accumulators[emulation::cta.current][kStrip];
  const int thread = static_cast<int>(threadIdx.x) % 128;
  for (int i = 0; i < kN / 2; ++i) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    const int col = i / 4 * 8 + thread % 4 * 2 + i % 2;
    float sum = accumulate != 0 ? d[i] : 0.0f;
    for (int k = 0; k < 64; ++k) {
      // Each instruction has descriptors of its own, 16 of k further.
      const u64 step = static_cast<u64>(k / 16);
      sum += WgmmaElement<kType>(a + step * (kTransA != 0 ? 128 : 2), kTransA, row, k % 16) *
             WgmmaElement<kType>(b + step * (kTransB != 0 ? 128 : 2), kTransB, col, k % 16);
    }
    d[i] = sum;
  }
}
template <int kStrip, int kFirst, int kCount>
void WgmmaRead(float* out) {
  static_assert(kFirst + kCount <= 128);
  std::copy_n(emulation::accumulators[emulation::cta.current][kStrip] + kFirst, kCount, out);
}

}  // namespace tw

/// `lane` = 0 of a value that is the same in all lanes.
// NOLINTNEXTLINE(readability-identifier-naming,bugprone-reserved-identifier): CUDA's name
inline int __shfl_sync(unsigned int, int value, int) { return value; }
