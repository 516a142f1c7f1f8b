#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Loads and stores of global memory that happen or not, without a branch: small code where there
// are many of them.

namespace tw {

/// Element `index` at `base` if `valid`, else 0.
template <Type kType>
TW_DEVICE float LoadIf(const void* base, int index, bool valid) {
#if defined(__CUDACC__)
  if constexpr (kType == Type::kF32) {
    float value;
    asm volatile(
        "{ .reg .pred p;\nsetp.ne.s32 p, %2, 0;\nmov.f32 %0, 0f00000000;\n"
        "@p ld.global.f32 %0, [%1]; }"
        : "=f"(value)
        : "l"(static_cast<const float*>(base) + index), "r"(static_cast<int>(valid))
        : "memory");
    return value;
  } else {
    u16 bits;
    asm volatile(
        "{ .reg .pred p;\nsetp.ne.s32 p, %2, 0;\nmov.u16 %0, 0;\n@p ld.global.u16 %0, [%1]; }"
        : "=h"(bits)
        : "l"(static_cast<const u16*>(base) + index), "r"(static_cast<int>(valid))
        : "memory");
    return kType == Type::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
  }
#else
  if (!valid) return 0.0f;
  if constexpr (kType == Type::kF32) {
    return static_cast<const float*>(base)[index];
  } else {
    const u16 bits = static_cast<const u16*>(base)[index];
    return kType == Type::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
  }
#endif
}

/// Stores x if `left` >= 1 and y behind it if `left` >= 2; 8 bytes at once if `wide`, that is, if
/// `at` is aligned for it.
TW_DEVICE void StoreFloats(float* at, float x, float y, int left, bool wide) {
#if defined(__CUDACC__)
  const bool both = wide && left >= 2;
  asm volatile(
      "{ .reg .pred both, first, second;\n"
      "setp.ne.s32 both, %3, 0;\nsetp.ne.s32 first, %4, 0;\nsetp.ne.s32 second, %5, 0;\n"
      "@both st.global.v2.f32 [%0], {%1, %2};\n"
      "@first st.global.f32 [%0], %1;\n@second st.global.f32 [%0+4], %2; }"
      :
      : "l"(at), "f"(x), "f"(y), "r"(static_cast<int>(both)),
        "r"(static_cast<int>(!both && left > 0)), "r"(static_cast<int>(!both && left > 1))
      : "memory");
#else
  static_cast<void>(wide);
  if (left > 0) at[0] = x;
  if (left > 1) at[1] = y;
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
