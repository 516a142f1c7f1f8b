#pragma once

#include <cstdint>

#include "device/cuda/kernels/mma_emulation.h"

// For tests only: tagged.cuh on the CPU, for grids whose CTAs RunLaunch runs side by side, as a
// cluster. Include it before any .cuh that uses it.

namespace tw {

struct U32x4;
struct U64x2;

namespace emulation {
/// What NanosecondsNow says; every look is a microsecond.
inline std::uint64_t nanoseconds = 0;
}  // namespace emulation

inline u64 NanosecondsNow() { return emulation::nanoseconds += 1000; }
inline void PauseInWait() { emulation::Yield(); }
inline int FirstLane(bool so) {
  emulation::Shown mine;
  mine.a[0] = so ? 1 : 0;
  const emulation::Shown* lanes = emulation::Exchange(mine);
  for (int lane = 0; lane < 32; ++lane)
    if (lanes[lane].a[0] != 0) return lane;
  return -1;
}

inline u32 LoadWordOnce(const u32* p) { return *p; }
inline void StoreWord(u32* p, u32 word) { *p = word; }
template <class Words = U32x4>
Words LoadFourWords(const u32* p) {
  emulation::Legal(reinterpret_cast<u64>(p), 16);
  return *reinterpret_cast<const Words*>(p);
}
template <class Words>
void StoreFourWords(u32* p, const Words& words) {
  emulation::Legal(reinterpret_cast<u64>(p), 16);
  *reinterpret_cast<Words*>(p) = words;
}
template <class Words = U64x2>
Words LoadTwoWords(const u64* p) {
  emulation::Legal(reinterpret_cast<u64>(p), 16);
  return *reinterpret_cast<const Words*>(p);
}
inline void StoreTwoWords(u64* p, u64 a, u64 b) {
  emulation::Legal(reinterpret_cast<u64>(p), 16);
  p[0] = a;
  p[1] = b;
}

}  // namespace tw
