#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Reductions with a fixed order: the same bits on every run. On the host the built-ins come from
// host_emulation.h, before this file.

namespace tw {

inline constexpr u32 kAllLanes = 0xffffffffu;

#if defined(__CUDACC__)  // on the host mma_emulation.h stands for it
/// `value` of lane `lane`. All lanes call it.
TW_DEVICE u32 FromLane(u32 value, int lane) { return __shfl_sync(kAllLanes, value, lane); }
#endif

/// `word` of the lane whose number differs in bit `step`. All lanes call it.
TW_DEVICE u32 OfPartner(u32 word, int step) {
  return BitsOf(__shfl_xor_sync(kAllLanes, FloatOf(word), step));
}

/// Whether it holds in any lane. All lanes call it.
TW_DEVICE bool InAnyLane(bool holds) {
#if defined(__CUDACC__)
  return __any_sync(kAllLanes, holds) != 0;
#else
  u32 any = holds ? 1 : 0;
  for (int step = 16; step > 0; step /= 2) any |= OfPartner(any, step);
  return any != 0;
#endif
}

/// The sum over the 32 lanes, in every lane. All lanes call it. The tree is symmetric, so all lanes
/// hold the same bits.
TW_DEVICE float WarpSum(float value) {
  TW_UNROLL
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

/// The sum over all threads of a CTA of kWarps warps, in every thread. `scratch`: shared, [kWarps].
/// All threads call it; before a second call with the same scratch there must be a barrier.
template <int kWarps>
TW_DEVICE float BlockSum(float value, float* scratch) {
  value = WarpSum(value);
  if constexpr (kWarps == 1) return value;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();  // every warp's sum is there before anyone adds them up
  float sum = 0.0f;
  TW_UNROLL
  for (int warp = 0; warp < kWarps; ++warp) sum += scratch[warp];
  return sum;
}

}  // namespace tw
