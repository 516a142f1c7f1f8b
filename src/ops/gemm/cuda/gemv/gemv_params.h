#pragma once

// Plain C++ for the compiler of the kernels and for the host.

namespace tw {

/// y[m][n] = alpha * sum over k of x[m][k] * W[n][k], plus beta * c[m][n] where the spec's epilogue
/// is kAdd. All pointers are of device memory. Strides of x, c and y are in elements, of W in
/// bytes. Grid of the launch: GemvGridX x GemvGridY x 1.
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

/// Values of a row of weights in blocks that a warp multiplies at a time.
inline constexpr int kGemvSpan = 256;

/// Bytes of `spans` spans of one row in shared memory: chunks of 16 bytes as they lie in global
/// memory, also where the row starts within one; an odd number of them, so that eight rows are in
/// different banks.
constexpr int GemvSegmentBytes(int spans, int block_bytes, int block_elements) {
  const int bytes = spans * (kGemvSpan / block_elements) * block_bytes;
  return ((bytes + 16 - GemvRowAlignment(block_bytes) + 15) / 16 | 1) * 16;
}

}  // namespace tw
