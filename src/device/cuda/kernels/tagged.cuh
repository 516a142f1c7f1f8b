#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "device/cuda/kernels/warp.cuh"

// Words that CTAs of one grid, all of them resident, hand to each other without a barrier: a word holds a value and
// the tag of the turn in which it was written, so that whoever finds the tag has the value. Words are
// read and written whole, and nothing else is concluded from them, so that no order of memory is asked
// for: neither side waits for anything but the word itself. A counter beside the values would cost a
// release, the way of the counter, and only then the way of the values.
//
// Small words are a bf16 and 16 bits of the tag, large ones an f32 and 32 bits of it.

namespace tw {

TW_DEVICE u32 SmallWord(float value, u32 tag) {
  return static_cast<u32>(F32ToBF16(value)) << 16 | (tag & 0xffffu);
}
TW_DEVICE float OfSmallWord(u32 word) { return FloatOf(word & 0xffff0000u); }
TW_DEVICE bool HasSmallTag(u32 word, u32 tag) { return ((word ^ tag) & 0xffffu) == 0; }
TW_DEVICE bool HaveSmallTag(const U32x4& words, u32 tag) {
  const u32 differ =
      (words.v[0] ^ tag) | (words.v[1] ^ tag) | (words.v[2] ^ tag) | (words.v[3] ^ tag);
  return (differ & 0xffffu) == 0;
}
TW_DEVICE u64 LargeWord(float value, u32 tag) { return u64{tag} << 32 | BitsOf(value); }
TW_DEVICE float OfLargeWord(u64 word) { return FloatOf(static_cast<u32>(word)); }
TW_DEVICE bool HasLargeTag(u64 word, u32 tag) { return static_cast<u32>(word >> 32) == tag; }

struct alignas(16) U64x2 {
  u64 v[2];
};

#if defined(__CUDACC__)  // on the host tagged_emulation.h stands for it

/// One, four and two words, each whole, from L2.
__device__ __forceinline__ u32 LoadWordOnce(const u32* p) {
  u32 word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(p) : "memory");
  return word;
}
__device__ __forceinline__ U32x4 LoadFourWords(const u32* p) {
  U32x4 r;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "l"(p)
               : "memory");
  return r;
}
__device__ __forceinline__ U64x2 LoadTwoWords(const u64* p) {
  U64x2 r;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(r.v[0]), "=l"(r.v[1])
               : "l"(p)
               : "memory");
  return r;
}
__device__ __forceinline__ void StoreWord(u32* p, u32 word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(word) : "memory");
}
__device__ __forceinline__ void StoreFourWords(u32* p, const U32x4& words) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(words.v[0]),
               "r"(words.v[1]), "r"(words.v[2]), "r"(words.v[3])
               : "memory");
}
__device__ __forceinline__ void StoreTwoWords(u64* p, u64 a, u64 b) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(a), "l"(b) : "memory");
}

/// The first lane in which it is so, -1 if it is in none. All lanes call it.
__device__ __forceinline__ int FirstLane(bool so) {
  return __ffs(static_cast<int>(__ballot_sync(kAllLanes, so))) - 1;
}

/// A clock that all multiprocessors share, to bound waits by.
__device__ __forceinline__ u64 NanosecondsNow() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
/// Between two looks at a word.
__device__ __forceinline__ void PauseInWait() {}

#endif

}  // namespace tw
