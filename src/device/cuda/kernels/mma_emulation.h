#pragma once

#include <cstring>

#include "device/cuda/kernels/host_emulation.h"
#include "device/cuda/kernels/numeric.cuh"

// For tests only: shared_memory.cuh, async_copy.cuh, ldmatrix.cuh and mma.cuh on the CPU, as
// functions of 32 lanes that exchange their operands (host_emulation.h). Include it before any .cuh
// that uses them. Copies happen at once: a missing wait does not show.

namespace tw::emulation {

/// Where CpAsync16 may read global memory, in either of two places; anywhere while the first is
/// null. A read elsewhere is a fault.
inline const u8* readable_begin = nullptr;
inline const u8* readable_end = nullptr;
inline const u8* other_readable_begin = nullptr;
inline const u8* other_readable_end = nullptr;

inline bool Readable(const u8* from, int bytes) {
  if (readable_begin == nullptr) return true;
  return (from >= readable_begin && from + bytes <= readable_end) ||
         (from >= other_readable_begin && from + bytes <= other_readable_end);
}

/// What a lane shows to the others, in two places by the parity of the exchange: a lane may show
/// the next one before its neighbours took this one.
struct Shown {
  u32 address = 0;
  u32 a[4] = {};
  u32 b[2] = {};
};
inline constexpr std::size_t kMostThreads = 2048;  // of a cluster
inline Shown shown[2][kMostThreads];
inline unsigned int exchanges[kMostThreads];

/// Shows `mine` to the warp; returns the 32 lanes.
inline const Shown* Exchange(const Shown& mine) {
  const std::size_t thread = cta.current;
  const unsigned int place = exchanges[thread]++ % 2;
  shown[place][thread] = mine;
  Yield();
  return &shown[place][thread / 32 * 32];
}

inline bool Legal(u64 address, std::size_t bytes) {
  const bool legal = address % bytes == 0;
  fault = fault || !legal;
  return legal;
}
/// `bytes` bytes of shared memory, at a multiple of as many, of CTA `rank`. Addresses are offsets
/// into `smem`.
inline u8* SharedOf(unsigned int rank, u32 address, std::size_t bytes) {
  const std::size_t begin = SmemBegin(rank);
  if (!Legal(address, bytes) || address < begin || address + bytes > begin + smem_bytes) {
    fault = true;
    return smem;
  }
  return smem + address;
}
/// Of the running CTA.
inline u8* Shared(u32 address, std::size_t bytes) { return SharedOf(cta.rank, address, bytes); }

}  // namespace tw::emulation

namespace tw {

inline u32 SmemAddress(const void* pointer) {
  return static_cast<u32>(static_cast<const u8*>(pointer) - emulation::smem);
}
inline void StoreShared4(u32 smem, u32 x) { std::memcpy(emulation::Shared(smem, 4), &x, 4); }
inline void StoreShared8(u32 smem, u32 x, u32 y) {
  const u32 words[2] = {x, y};
  std::memcpy(emulation::Shared(smem, 8), words, 8);
}
inline void StoreShared16(u32 smem, u32 x, u32 y, u32 z, u32 w) {
  const u32 words[4] = {x, y, z, w};
  std::memcpy(emulation::Shared(smem, 16), words, 16);
}
inline void LoadShared16(u32 (&v)[4], u32 smem) { std::memcpy(v, emulation::Shared(smem, 16), 16); }
inline void CpAsync16(u32 smem, const void* global, int bytes) {
  u8* to = emulation::Shared(smem, 16);
  if (bytes > 0 && !emulation::Legal(reinterpret_cast<u64>(global), 16)) return;
  const u8* from = static_cast<const u8*>(global);
  if (bytes > 0 && !emulation::Readable(from, bytes)) {
    emulation::fault = true;
    return;
  }
  std::memset(to, 0, 16);
  if (bytes > 0) std::memcpy(to, global, static_cast<std::size_t>(bytes));
}
inline void CpAsync16(u32 smem, const void* global) { CpAsync16(smem, global, 16); }
inline u64 ReadOncePolicy() { return 1; }
inline void CpAsync16Once(u32 smem, const void* global, u64 policy) {
  emulation::fault = emulation::fault || policy != ReadOncePolicy();
  CpAsync16(smem, global, 16);
}
inline void CpAsync16OrZeros(u32 smem, const void* global, bool exists) {
  CpAsync16(smem, global, exists ? 16 : 0);
}
inline void CpAsyncCommit() {}
template <int kPending>
void CpAsyncWait() {}
/// What lanes of a warp wrote to shared memory is there for the others.
inline void WarpBarrier() { emulation::Yield(); }
inline void LoadMatrices(u32 (&r)[4], u32 smem, bool transposed) {
  emulation::Shown mine;
  mine.address = smem;
  const emulation::Shown* lanes = emulation::Exchange(mine);
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  for (int i = 0; i < 4; ++i) {
    const auto element = [&](int row, int col) {
      u16 value;
      std::memcpy(&value, emulation::Shared(lanes[8 * i + row].address, 16) + 2 * col, 2);
      return static_cast<u32>(value);
    };
    r[i] = transposed ? element(2 * t, g) | element(2 * t + 1, g) << 16
                      : element(g, 2 * t) | element(g, 2 * t + 1) << 16;
  }
}
inline void LdMatrixX4(u32 (&r)[4], u32 smem) { LoadMatrices(r, smem, false); }
inline void LdMatrixX4Trans(u32 (&r)[4], u32 smem) { LoadMatrices(r, smem, true); }
inline u32 TransposeMatrix(u32 pair) {
  emulation::Shown mine;
  mine.a[0] = pair;
  const emulation::Shown* lanes = emulation::Exchange(mine);
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const auto element = [&](int row) { return lanes[4 * row + g / 2].a[0] >> g % 2 * 16 & 0xffffu; };
  return element(2 * t) | element(2 * t + 1) << 16;
}

inline u32 FromLane(u32 value, int lane) {
  emulation::Shown mine;
  mine.a[0] = value;
  return emulation::Exchange(mine)[lane].a[0];
}

template <Type kType>
void Mma16816(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
  const emulation::Shown mine{.address = 0, .a = {a[0], a[1], a[2], a[3]}, .b = {b0, b1}};
  const emulation::Shown* lanes = emulation::Exchange(mine);
  const auto half = [](u32 word, int k) {
    return k % 2 == 0 ? LowToF32<kType>(word) : HighToF32<kType>(word);
  };
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  for (int i = 0; i < 4; ++i) {
    const int row_half = i / 2;
    const int col = 2 * t + i % 2;
    float sum = d[i];
    for (int k = 0; k < 16; ++k) {
      const u32 word_a = lanes[4 * g + k % 8 / 2].a[row_half + k / 8 * 2];
      const u32 word_b = lanes[4 * col + k % 8 / 2].b[k / 8];
      sum += half(word_a, k) * half(word_b, k);
    }
    d[i] = sum;
  }
}

template <Type kType>
void Mma16816Zero(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
  for (int i = 0; i < 4; ++i) d[i] = 0.0f;
  Mma16816<kType>(d, a, b0, b1);
}

}  // namespace tw
