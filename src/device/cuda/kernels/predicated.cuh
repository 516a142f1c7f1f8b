#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Loads and stores of global memory that happen or not, without a branch: small code where there
// are many of them.

namespace tw {

/// Two adjacent elements at `at`: the first if `left` >= 1, the second if `left` >= 2, else zeros.
/// By one load where both are read and `wide` is not 0, that is, `at` is aligned for it.
template <Type kType>
TW_DEVICE void LoadPairIf(float (&pair)[2], const void* at, int left, int wide) {
#if defined(__CUDACC__)
  if constexpr (kType == Type::kF32) {
    asm volatile(
        "{ .reg .pred both, first, second;\n"
        "setp.gt.s32 second, %3, 1;\nsetp.ne.and.s32 both, %4, 0, second;\n"
        "setp.gt.and.s32 first, %3, 0, !both;\nsetp.gt.and.s32 second, %3, 1, !both;\n"
        "mov.f32 %0, 0f00000000;\nmov.f32 %1, 0f00000000;\n"
        "@both ld.global.v2.f32 {%0, %1}, [%2];\n"
        "@first ld.global.f32 %0, [%2];\n@second ld.global.f32 %1, [%2+4]; }"
        : "=&f"(pair[0]), "=&f"(pair[1])
        : "l"(at), "r"(left), "r"(wide)
        : "memory");
  } else {
    u32 word;
    asm volatile(
        "{ .reg .pred both, first, second;\n.reg .u16 low, high;\n"
        "setp.gt.s32 second, %2, 1;\nsetp.ne.and.s32 both, %3, 0, second;\n"
        "setp.gt.and.s32 first, %2, 0, !both;\nsetp.gt.and.s32 second, %2, 1, !both;\n"
        "mov.u16 low, 0;\nmov.u16 high, 0;\n"
        "@first ld.global.u16 low, [%1];\n@second ld.global.u16 high, [%1+2];\n"
        "mov.b32 %0, {low, high};\n@both ld.global.b32 %0, [%1]; }"
        : "=&r"(word)
        : "l"(at), "r"(left), "r"(wide)
        : "memory");
    pair[0] = LowToF32<kType>(word);
    pair[1] = HighToF32<kType>(word);
  }
#else
  static_cast<void>(wide);
  pair[0] = pair[1] = 0.0f;
  for (int i = 0; i < 2 && i < left; ++i) {
    if constexpr (kType == Type::kF32) {
      pair[i] = static_cast<const float*>(at)[i];
    } else {
      pair[i] = LowToF32<kType>(static_cast<const u16*>(at)[i]);
    }
  }
#endif
}

/// 16 bytes at `at`, a multiple of 16, or zeros. Loads behind one another are under way together; of a
/// branch each would be waited for where it ends.
TW_DEVICE void LoadGlobal16If(u32 (&v)[4], const void* at, bool exists) {
#if defined(__CUDACC__)
  asm volatile(
      "{ .reg .pred exists;\nsetp.ne.s32 exists, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@exists ld.global.v4.b32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(v[0]), "=&r"(v[1]), "=&r"(v[2]), "=&r"(v[3])
      : "l"(at), "r"(static_cast<int>(exists))
      : "memory");
#else
  for (int i = 0; i < 4; ++i) v[i] = exists ? static_cast<const u32*>(at)[i] : 0;
#endif
}

/// The same for 8 bytes.
TW_DEVICE void LoadGlobal8If(u32 (&v)[2], const void* at, bool exists) {
#if defined(__CUDACC__)
  asm volatile(
      "{ .reg .pred exists;\nsetp.ne.s32 exists, %3, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\n"
      "@exists ld.global.v2.b32 {%0, %1}, [%2]; }"
      : "=&r"(v[0]), "=&r"(v[1])
      : "l"(at), "r"(static_cast<int>(exists))
      : "memory");
#else
  for (int i = 0; i < 2; ++i) v[i] = exists ? static_cast<const u32*>(at)[i] : 0;
#endif
}

/// 16 bytes to `at`, a multiple of 16.
TW_DEVICE void StoreGlobal16(void* at, const u32 (&v)[4]) {
#if defined(__CUDACC__)
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(at), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
#else
  for (int i = 0; i < 4; ++i) static_cast<u32*>(at)[i] = v[i];
#endif
}

}  // namespace tw
