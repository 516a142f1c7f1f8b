#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Wide loads and stores of global memory. Stream: data that one SM reads once (weights): not kept
// in L1, 128 bytes fetched into L2 at a time. Cached: data that many warps read (activations).
//
// None goes by the read-only path (ld.global.nc) or may be moved by the compiler: in front of a wait
// for earlier kernels (dependent_launch.cuh) it could read what they have yet to write.

namespace tw {

struct alignas(8) U32x2 {
  u32 v[2];
};
struct alignas(16) U32x4 {
  u32 v[4];
};

// 16, 8, 4 and 2 bytes; `p` is aligned to that.
#if defined(__CUDACC__)
TW_DEVICE U32x4 LoadStream16(const void* p) {
  U32x4 r;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "l"(p)
               : "memory");
  return r;
}
/// Several instructions read one line here (the parts of a packed block): L1 keeps it meanwhile.
TW_DEVICE U32x4 LoadOnce16(const void* p) {
  U32x4 r;
  asm volatile("ld.global.L1::evict_first.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "l"(p)
               : "memory");
  return r;
}
TW_DEVICE U32x2 LoadOnce8(const void* p) {
  U32x2 r;
  asm volatile("ld.global.L1::evict_first.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(r.v[0]), "=r"(r.v[1])
               : "l"(p)
               : "memory");
  return r;
}
TW_DEVICE u32 LoadOnce4(const void* p) {
  u32 r;
  asm volatile("ld.global.L1::evict_first.L2::128B.u32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
  return r;
}
TW_DEVICE u16 LoadOnce2(const void* p) {
  u16 r;
  asm volatile("ld.global.L1::evict_first.L2::128B.u16 %0, [%1];" : "=h"(r) : "l"(p) : "memory");
  return r;
}
TW_DEVICE U32x4 LoadCached16(const void* p) {
  U32x4 r;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
               : "l"(p)
               : "memory");
  return r;
}
TW_DEVICE U32x2 LoadCached8(const void* p) {
  U32x2 r;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(r.v[0]), "=r"(r.v[1]) : "l"(p) : "memory");
  return r;
}
#else
template <class T>
TW_DEVICE T LoadBytes(const void* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}
TW_DEVICE U32x4 LoadStream16(const void* p) { return LoadBytes<U32x4>(p); }
TW_DEVICE U32x4 LoadOnce16(const void* p) { return LoadBytes<U32x4>(p); }
TW_DEVICE U32x2 LoadOnce8(const void* p) { return LoadBytes<U32x2>(p); }
TW_DEVICE u32 LoadOnce4(const void* p) { return LoadBytes<u32>(p); }
TW_DEVICE u16 LoadOnce2(const void* p) { return LoadBytes<u16>(p); }
TW_DEVICE U32x4 LoadCached16(const void* p) { return LoadBytes<U32x4>(p); }
TW_DEVICE U32x2 LoadCached8(const void* p) { return LoadBytes<U32x2>(p); }
#endif

/// Keeps the compiler from computing an address again, from what it was computed of, in a loop.
template <class T>
TW_DEVICE void KeepAddress(T*& p) {
#if defined(__CUDACC__)
  asm("" : "+l"(p));
#else
  (void)p;
#endif
}

/// Keeps what is computed of these numbers behind the loads in front of this: the compiler would
/// wait for the first of them before it starts the last.
TW_DEVICE void KeepOrder(u32& a, u32& b, u32& c) {
#if defined(__CUDACC__)
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c)::"memory");
#else
  static_cast<void>(a), static_cast<void>(b), static_cast<void>(c);
#endif
}

/// One element; for memory that the kernel may also write.
template <Type kType>
TW_DEVICE float LoadElement(const void* base, i64 index) {
  if constexpr (kType == Type::kF32) {
    return static_cast<const float*>(base)[index];
  } else {
    const u16 bits = static_cast<const u16*>(base)[index];
    return kType == Type::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
  }
}
template <Type kType>
TW_DEVICE void StoreElement(void* base, i64 index, float value) {
  if constexpr (kType == Type::kF32) {
    static_cast<float*>(base)[index] = value;
  } else {
    static_cast<u16*>(base)[index] = kType == Type::kBF16 ? F32ToBF16(value) : F32ToF16(value);
  }
}

/// kCount adjacent elements from element `index` on, by loads of up to 16 bytes; the address is a
/// multiple of min(16, bytes). Plain loads: the kernel may have written the memory.
template <Type kType, int kCount>
TW_DEVICE void LoadPack(const void* base, i64 index, float (&out)[kCount]) {
  if constexpr (kCount == 1) {
    out[0] = LoadElement<kType>(base, index);
  } else if constexpr (kType == Type::kF32) {
    static_assert(kCount % 4 == 0, "whole 16-byte loads");
    TW_UNROLL
    for (int i = 0; i < kCount; i += 4) {
      const U32x4 r = *reinterpret_cast<const U32x4*>(static_cast<const float*>(base) + index + i);
      TW_UNROLL
      for (int j = 0; j < 4; ++j) out[i + j] = FloatOf(r.v[j]);
    }
  } else if constexpr (kCount == 4) {
    const U32x2 r = *reinterpret_cast<const U32x2*>(static_cast<const u16*>(base) + index);
    TW_UNROLL
    for (int j = 0; j < 2; ++j) {
      out[2 * j] = LowToF32<kType>(r.v[j]);
      out[2 * j + 1] = HighToF32<kType>(r.v[j]);
    }
  } else {
    static_assert(kCount == 8, "1, 4 or 8 elements");
    const U32x4 r = *reinterpret_cast<const U32x4*>(static_cast<const u16*>(base) + index);
    TW_UNROLL
    for (int j = 0; j < 4; ++j) {
      out[2 * j] = LowToF32<kType>(r.v[j]);
      out[2 * j + 1] = HighToF32<kType>(r.v[j]);
    }
  }
}

/// The same for stores, rounding to nearest even.
template <Type kType, int kCount>
TW_DEVICE void StorePack(void* base, i64 index, const float (&in)[kCount]) {
  if constexpr (kCount == 1) {
    StoreElement<kType>(base, index, in[0]);
  } else if constexpr (kType == Type::kF32) {
    static_assert(kCount % 4 == 0, "whole 16-byte stores");
    TW_UNROLL
    for (int i = 0; i < kCount; i += 4) {
      const U32x4 r{{BitsOf(in[i]), BitsOf(in[i + 1]), BitsOf(in[i + 2]), BitsOf(in[i + 3])}};
      *reinterpret_cast<U32x4*>(static_cast<float*>(base) + index + i) = r;
    }
  } else if constexpr (kCount == 4) {
    const U32x2 r{{PackPairOf<kType>(in[0], in[1]), PackPairOf<kType>(in[2], in[3])}};
    *reinterpret_cast<U32x2*>(static_cast<u16*>(base) + index) = r;
  } else {
    static_assert(kCount == 8, "1, 4 or 8 elements");
    const U32x4 r{{PackPairOf<kType>(in[0], in[1]), PackPairOf<kType>(in[2], in[3]),
                   PackPairOf<kType>(in[4], in[5]), PackPairOf<kType>(in[6], in[7])}};
    *reinterpret_cast<U32x4*>(static_cast<u16*>(base) + index) = r;
  }
}

/// What LoadPack and StorePack need of an address, in bytes.
template <Type kType, int kCount>
TW_DEVICE constexpr u64 PackAlignment() {
  constexpr int kBytes = kCount * FloatBytes<kType>();
  return kBytes < 16 ? kBytes : 16;
}

/// Whether packs at every multiple of kCount elements in every row are aligned.
template <Type kType, int kCount>
TW_DEVICE bool PacksAligned(const void* base, i64 row_elements) {
  constexpr u64 kAlignment = PackAlignment<kType, kCount>();
  return (reinterpret_cast<u64>(base) | static_cast<u64>(row_elements) * FloatBytes<kType>()) %
             kAlignment ==
         0;
}

/// One rounding to kType and back: what a value is once it was stored.
template <Type kType>
TW_DEVICE float RoundTo(float value) {
  if constexpr (kType == Type::kF32) return value;
  if constexpr (kType == Type::kBF16) return BF16ToF32(F32ToBF16(value));
  if constexpr (kType == Type::kF16) return F16ToF32(F32ToF16(value));
}

}  // namespace tw
