#pragma once

#include "tilewright/cuda/gemm_params.h"
#include "tilewright/cuda/gemm_q_params.h"

// What a launch of a kernel of the family gemm_qw consists of. The kernels include this very file,
// so it is plain C++, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads and as much dynamic shared memory
// as ArtifactData::launch of the compiled kernel says (more than 48 KiB has to be allowed for the
// function first); and (GemmQwGridX, 1, 1) CTAs.
//
// Fields of a KernelSpec that the family names itself:
//
//   param0  warpgroups that share rows of W, each with quarters of every k-tile: 1, 2 or 4
//   param1  CTAs that a multiprocessor is to hold
//   param2  0
//   param3  0

namespace tilewright::cuda {

/// y as GemmQParams has it. Strides of x, c and y are in elements.
///
/// The map describes W as lines of 16-bit units, of bytes where a block has an odd number of them: no
/// swizzle, L2 promotion 256B, zeros outside, one line for each of the n rows, with the units of k
/// values; a box is GemmQwLineBytes of tile_n rows, from GemmQwBoxBegin on.
struct GemmQwParams {
  TensorMap w;
  const void* x;  ///< [m][k], type_a; every row aligned to 16 bytes
  const void* c;  ///< [m][n], type_c; read only where beta is not 0
  void* y;        ///< [m][n], type_d; may be c
  /// Sums of CTAs that share an output tile: [CTAs][tile_m][tile_n], 16-byte aligned.
  float* partials;
  /// [output tiles], zero before the launch and after it. Neither is used where no tile is shared.
  unsigned int* arrivals;
  long long ldx, ldc, ldy;
  int m, n;
  int k;  ///< a multiple of the block
  float alpha, beta;
  /// Not 0: W is not written by work that may still be queued, and is read ahead of it.
  int w_constant;
};
static_assert(sizeof(GemmQwParams) == 256, "layout");

/// Bytes of a k-tile of one row of W.
constexpr int GemmQwTileBytes(int block_bytes, int block_elements) {
  return kGemmQTileK / block_elements * block_bytes;
}

/// Where a box may begin in a row: at multiples of so many bytes.
inline constexpr int kGemmQwBoxAlignment = 16;

/// Bytes of one row of W in shared memory: what is copied of it for a k-tile. Where k-tiles begin anywhere
/// that is what covers one wherever it begins, and an odd number of 16 bytes, so that four words of
/// eight rows beside each other are in all banks.
constexpr int GemmQwLineBytes(int block_bytes, int block_elements) {
  constexpr int kChunk = kGemmQwBoxAlignment;
  const int bytes = GemmQwTileBytes(block_bytes, block_elements);
  if (bytes % kChunk == 0) return bytes;
  const int step = bytes & -bytes;  // what all k-tiles begin at a multiple of
  return ((bytes + kChunk - step + kChunk - 1) / kChunk | 1) * kChunk;
}

/// Where the box of k-tile `k_tile` of `k_tiles` begins in a row of W, in bytes: not behind where the k-tile does, at a
/// multiple of 16, and so that it ends with the row if there is room in it, since what lies outside takes the
/// copy engine longer.
constexpr int GemmQwBoxBegin(int tile_bytes, int line_bytes, int k_tile, int k_tiles) {
  constexpr int kChunk = kGemmQwBoxAlignment;
  const int begin = k_tile * tile_bytes / kChunk * kChunk;
  const int left = k_tiles * tile_bytes - line_bytes;
  const int last = left < 0 ? 0 : (left + kChunk - 1) / kChunk * kChunk;
  return begin < last ? begin : last;
}

/// Bytes of an element of the map.
constexpr int GemmQwUnitBytes(int block_bytes) { return block_bytes % 2 == 0 ? 2 : 1; }

/// K-tiles of all output tiles: what the CTAs divide among themselves, each a run of them, k-tiles
/// of one output tile before those of the next; output tiles that read the same weights beside each
/// other.
constexpr long long GemmQwUnits(int m, int n, int k, int tile_m, int tile_n) {
  return GemmQTiles(m, n, tile_m, tile_n) * GemmQKTiles(k);
}
/// Where the run of CTA `cta` of `ctas` begins; that of the next is its end.
constexpr long long GemmQwBegin(long long units, int cta, int ctas) { return units * cta / ctas; }
/// Whose run a unit is in.
constexpr int GemmQwOwner(long long units, long long unit, int ctas) {
  return static_cast<int>(((unit + 1) * ctas - 1) / units);
}

/// Grid x: as many CTAs as run at once. They divide the work by what the grid is: fewer compute the same,
/// in another order of sums.
constexpr unsigned int GemmQwGridX(long long units, int sm_count, int ctas_per_sm) {
  const long long fit = static_cast<long long>(sm_count) * ctas_per_sm;
  return static_cast<unsigned int>(units < fit ? units : fit < 1 ? 1 : fit);
}

}  // namespace tilewright::cuda
