#pragma once

#include "device/cuda/kernels/rotation.cuh"
#include "device/cuda/kernels/types.cuh"
#include "tilewright/cuda/rope_params.h"

// What the kernels of this room share beside the angles: their place in shared memory, and the work
// of a thread on a head.

namespace tw {

using tilewright::cuda::kMaxRopeDims;

/// Of one position; what the threads of a CTA share.
struct alignas(16) RopeTables {
  float cosines[kMaxRopeDims / 2];
  float sines[kMaxRopeDims / 2];
};

/// Where work item `item` of a head finds its 2 * kPairs elements: kPairs from `first` on and
/// kPairs from `second` on. Items 0 .. head_dim / (2 kPairs) - 1 cover a head once; those below
/// dims / (2 kPairs) turn pairs item * kPairs and following.
struct RopePlace {
  int first, second;
  bool turns;
};
template <bool kHalfSplit, int kPairs>
TW_DEVICE RopePlace RopePlaceOf(int item, int dims) {
  const int at = 2 * kPairs * item;
  if (at >= dims) return {at, at + kPairs, false};
  if (kHalfSplit) return {kPairs * item, dims / 2 + kPairs * item, true};
  return {at, at + kPairs, true};
}

/// Turns the pairs of an item, `x` being its elements from `first` on and then from `second` on.
template <bool kHalfSplit, int kPairs>
TW_DEVICE void RopeTurn(const float* cosines, const float* sines, float (&x)[2 * kPairs]) {
  TW_UNROLL
  for (int i = 0; i < kPairs; ++i) {
    const int a = kHalfSplit ? i : 2 * i, b = kHalfSplit ? i + kPairs : 2 * i + 1;
    const Turned turned = TurnPair(x[a], x[b], cosines[i], sines[i]);
    x[a] = turned.x0;
    x[b] = turned.x1;
  }
}

}  // namespace tw
