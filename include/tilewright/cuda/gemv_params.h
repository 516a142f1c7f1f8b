#pragma once

// What a launch of a kernel of the families gemv_bf16 and gemv_q consists of. The kernels include
// this very file, so it is plain C++ without any other header, seen by the host compiler and by
// NVRTC.
//
// A launch has one parameter, the block by value; as many threads and as much dynamic shared memory
// as ArtifactData::launch of the compiled kernel says (more than 48 KiB has to be allowed for the
// function first); and (GemvGridX, GemvGridY, 1) CTAs. There is no workspace, nothing has to be
// zeroed.
//
// Fields of a KernelSpec that the families name themselves:
//
//   param0  warps that share a row of W, each with a part of k; a divisor of `warps`
//   param1  CTAs that a multiprocessor is to hold: bounds the registers
//   param2  0
//   param3  0
//   stages  gemv_bf16: reads of 16 bytes of a row that a lane has in flight; gemv_q: stages of the
//           ring in shared memory

namespace tilewright::cuda {

/// y[m][n] = alpha * sum over k of x[m][k] * W[n][k], plus beta * c[m][n] where the spec's epilogue
/// is SpecEpilogue::kAdd. All pointers are of device memory. Strides of x, c and y are in elements,
/// of W in bytes. Grid of the launch: GemvGridX x GemvGridY x 1.
struct GemvParams {
  /// [m][k], type_a. Weights in blocks: every row aligned to four elements. Plain weights: to one;
  /// fast when x is aligned to four elements and W to 16 bytes in every row, element by element
  /// otherwise.
  const void* x;
  const void* w;  ///< [n][k], type_b; blocks: every row aligned to GemvRowAlignment(block bytes)
  const void* c;  ///< [m][n], type_c, or null
  void* y;        ///< [m][n], type_d; may be c
  long long ldx;  ///< at most kGemvMaxLdx
  long long ldc, ldy;
  long long w_row_bytes;
  int m;  ///< any; the grid covers it in steps of tile_m
  int n;
  int k;  ///< blocks: a multiple of the block
  float alpha, beta;
  /// Not 0: W is not written by work that may still be queued, and is read ahead of it.
  int w_constant;
};

/// Eight rows of x are addressed by 31 bits.
inline constexpr long long kGemvMaxLdx = (1ll << 28) - 1;

constexpr unsigned int GemvGridX(int n, int tile_n) {
  return static_cast<unsigned int>((n + tile_n - 1) / tile_n);
}
constexpr unsigned int GemvGridY(int m, int tile_m) {
  return static_cast<unsigned int>((m + tile_m - 1) / tile_m);
}

/// What the address of every row of W must be a multiple of, by the bytes of a block: 144 is q4_K,
/// 20 is q4_1, the others are made of 16-bit units.
constexpr int GemvRowAlignment(int block_bytes) {
  return block_bytes % 16 == 0 ? 16 : block_bytes % 4 == 0 ? 4 : 2;
}

}  // namespace tilewright::cuda
