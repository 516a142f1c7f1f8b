#pragma once

#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"

// Angles of the rotary embedding without f64: a frequency is a fraction of a turn a position, as a
// 64-bit fraction. Multiplying by the position drops whole turns exactly, so that the angle is
// right at every position: its error is that of the frequency (2^-54 of it, rounded once from f64)
// times the position. Compiles on the host, where a test compares with f64.

namespace tw {

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

/// A pair of a head. Each product is rounded on its own, whatever the compiler may fuse elsewhere
/// in the kernel: all kernels that turn a head give it the same bits.
struct Turned {
  float x0, x1;
};
TW_DEVICE Turned TurnPair(float x0, float x1, float cos, float sin) {
#if defined(__CUDACC__)
  return {__fsub_rn(x0 * cos, x1 * sin), __fadd_rn(x0 * sin, x1 * cos)};
#else
  return {x0 * cos - x1 * sin, x0 * sin + x1 * cos};
#endif
}

}  // namespace tw
