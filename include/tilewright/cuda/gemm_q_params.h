#pragma once

// What a launch of a kernel of the family gemm_q consists of. The kernels include this very file,
// so it is plain C++ without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads and as much dynamic shared memory
// as ArtifactData::launch of the compiled kernel says (more than 48 KiB has to be allowed for the
// function first); and (GemmQGridX, 1, 1) CTAs.
//
// Fields of a KernelSpec that the family names itself:
//
//   param0  warps that share rows of W, each with a part of every k-tile: 1, 2 or 4
//   param1  CTAs that a multiprocessor is to hold: bounds the registers
//   param2  0
//   param3  0

namespace tilewright::cuda {

/// y[m][n] = alpha * sum over k of x[m][k] * W[n][k], plus beta * c[m][n] where beta is not 0. With
/// SpecEpilogue::kSwiGlu the rows of W are kGemvGatedBlock (gemv_params.h) of gate and as many of up
/// in turn, and y has n / 2 columns: silu(gate) * up, without c. All pointers are of device memory. Strides of x, c and y are in elements, of W in bytes.
struct GemmQParams {
  const void* x;  ///< [m][k], type_a; every row aligned to 16 bytes
  const void* w;  ///< [n][k], type_b; every row aligned to GemvRowAlignment(block bytes)
  const void* c;  ///< [m][n], type_c; read only where beta is not 0
  void* y;        ///< [m][n], type_d; may be c
  /// Where `splits` is more than 1: [output tiles][splits][tile_m][tile_n], 16-byte aligned.
  float* partials;
  /// Where `splits` is more than 1: [output tiles], zero before the launch and after it.
  unsigned int* arrivals;
  long long ldx, ldc, ldy;
  long long w_row_bytes;
  int m, n;
  int k;       ///< a multiple of the block
  int splits;  ///< CTAs that share an output tile, each with a part of k; at most the k-tiles
  float alpha, beta;
  /// Not 0: W is not written by work that may still be queued, and is read ahead of it.
  int w_constant;
};

/// Values of k that a stage of the ring holds of every row.
inline constexpr int kGemmQTileK = 256;

constexpr int GemmQKTiles(int k) { return (k - 1) / kGemmQTileK + 1; }

/// Output tiles of tile_m x tile_n that cover m x n.
constexpr long long GemmQTiles(int m, int n, int tile_m, int tile_n) {
  return ((m - 1LL) / tile_m + 1) * ((n - 1LL) / tile_n + 1);
}

/// Grid x: the rows of tiles that read the same weights are next to each other, so that the second
/// finds them in the L2; then splits, then columns of tiles.
constexpr unsigned int GemmQGridX(int m, int n, int tile_m, int tile_n, int splits) {
  return static_cast<unsigned int>(GemmQTiles(m, n, tile_m, tile_n) * splits);
}

}  // namespace tilewright::cuda
