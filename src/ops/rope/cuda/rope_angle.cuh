#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "tilewright/cuda/rope_params.h"

// Angles of the rotary embedding without f64: a frequency is a fraction of a turn a position, as a
// 64-bit fraction. Multiplying by the position drops whole turns exactly, so that the angle is
// right at every position: its error is that of the frequency (2^-54 of it, rounded once from f64)
// times the position. Compiles on the host, where a test compares with f64.

namespace tw {

using tilewright::cuda::kMaxRopeDims;

/// Of one position; what the threads of a CTA share.
struct alignas(16) RopeTables {
  float cosines[kMaxRopeDims / 2];
  float sines[kMaxRopeDims / 2];
};

struct SinCos {
  float sin, cos;
};

/// Of position * turns / 2^64 turns. Within 1.2e-7 of the exact values.
TW_DEVICE SinCos SinCosOfTurns(int position, u64 turns) {
  const u64 angle = static_cast<u64>(static_cast<i64>(position)) * turns;  // whole turns fall off
  // The nearest quarter turn, and the rest in -1/8 .. 1/8 turns.
  const u64 quarter = (angle + (u64{1} << 61)) >> 62;
  const float rest = static_cast<float>(static_cast<i64>(angle - (quarter << 62)));
  // Times 2 pi / 2^64, in two parts.
  const float x = Fma(rest, 6.28318548f * 0x1p-64f, rest * (-1.74845553e-7f * 0x1p-64f));
  const float z = x * x;
  // Minimax fits over -pi/4 .. pi/4: relative error 4e-9 of the sine, 1e-10 of the cosine.
  const float p = Fma(Fma(-1.951521597e-4f, z, 8.332160272e-3f), z, -1.666665460e-1f);
  const float s = Fma(x * z, p, x);
  const float r = Fma(Fma(2.443837578e-5f, z, -1.388736687e-3f), z, 4.166664685e-2f);
  const float c = Fma(z, Fma(z, r, -0.5f), 1.0f);
  const float sin = (quarter & 1) != 0 ? c : s, cos = (quarter & 1) != 0 ? s : c;
  return {(quarter & 2) != 0 ? -sin : sin, ((quarter + 1) & 2) != 0 ? -cos : cos};
}

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
    const float x0 = x[a], x1 = x[b];
    x[a] = x0 * cosines[i] - x1 * sines[i];
    x[b] = x0 * sines[i] + x1 * cosines[i];
  }
}

}  // namespace tw
