#pragma once

#include "tilewright/cuda/gemm_params.h"
#include "tilewright/cuda/gemm_q_params.h"

// What a launch of a kernel of the family gemm_qr consists of. The kernels include this very file,
// so it is plain C++, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads and as much dynamic shared memory
// as ArtifactData::launch of the compiled kernel says (more than 48 KiB has to be allowed for the
// function first); and (slices * groups, GemmQrTilesM, 1) CTAs, whatever the number of groups.
//
// Fields of a KernelSpec that the family names itself: param0 to param3 are 0.

namespace tilewright::cuda {

/// y as GemmQParams has it. Strides of x, c and y are in elements.
///
/// The map describes W as that of GemmQwParams does, and so are its boxes.
struct GemmQrParams {
  TensorMap w;
  const void* x;  ///< [m][k], type_a; every row aligned to 16 bytes
  const void* c;  ///< [m][n], type_c; read only where beta is not 0
  void* y;        ///< [m][n], type_d; may be c
  /// Where `slices` is more than 1: [output tiles][slices][tile_m][tile_n], 16-byte aligned.
  float* partials;
  /// Where `slices` is more than 1: [output tiles], zero before the launch and after it.
  unsigned int* arrivals;
  long long ldx, ldc, ldy;
  int m, n;
  int k;       ///< a multiple of the block
  int slices;  ///< parts of k, each of 1 to kGemmQrWarps k-tiles; a divisor of grid x
  float alpha, beta;
  /// Not 0: W is not written by work that may still be queued, and is read ahead of it.
  int w_constant;
  int padding;
};
static_assert(sizeof(GemmQrParams) == 256, "layout");

/// Warps of a CTA that multiply, each with one k-tile of kGemmQTileK values.
inline constexpr int kGemmQrWarps = 8;
/// And warps that add up their sums and store y.
inline constexpr int kGemmQrStoringWarps = 4;

/// Where slice `slice` of `slices` of k begins, in k-tiles; that of the next is its end.
constexpr int GemmQrBegin(int k_tiles, int slice, int slices) {
  return static_cast<int>(static_cast<long long>(k_tiles) * slice / slices);
}

/// Grid y.
constexpr int GemmQrTilesM(int m, int tile_m) { return (m - 1) / tile_m + 1; }

}  // namespace tilewright::cuda
