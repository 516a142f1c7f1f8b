#pragma once

#include "tilewright/cuda/gemm_qw_params.h"

// What a launch of a kernel of the family gemm_chain consists of: products one after the other in one
// launch, each of what the one in front of it has left. The kernels include this very file, so it is
// plain C++, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads and as much dynamic shared memory
// as ArtifactData::launch of the compiled kernel says; and as many CTAs as the GPU has multiprocessors,
// in one dimension. They wait for each other: the launch has to be cooperative.
//
// Fields of a KernelSpec that the family names itself:
//
//   param0  warpgroups that share rows of W, each with quarters of every k-tile: 1, 2 or 4
//   param1  0
//   param2  0
//   param3  0

namespace tilewright::cuda {

/// Products of a launch at most.
inline constexpr int kMostChainProducts = 4;

/// Rows of W in a box of its map, which is otherwise that of GemmQwParams.
inline constexpr int kChainBoxRows = 64;

/// y = alpha * x * W + beta * c, as GemmQwParams has it, with at most tile_m rows.
struct GemmChainProduct {
  TensorMap w;
  const void* x;           ///< [m][k], bf16, every row aligned to 16 bytes
  const void* c;           ///< [m][n], bf16; read only where beta is not 0
  void* y;                 ///< [m][n], bf16; may be c
  float* partials;         ///< as in GemmQwParams
  unsigned int* arrivals;  ///< as in GemmQwParams, and of this product alone
  /// [k], aligned to 16 bytes, or nullptr: row r of x stands for
  /// bf16(x[r, i] / sqrt(mean of x[r]^2 + epsilon) * gain[i]).
  const float* gain;
  const float* squares;  ///< with `gain`: what the product that made x left of it
  float* squares_out;    ///< [tiles of n][tile_m]: of each row of y, as it is stored; or nullptr
  long long ldx, ldc, ldy;
  int m, n, k;
  float alpha, beta, epsilon;
  int gated;       ///< not 0: y = silu(gate) * up, of n / 2 columns
  int squares_of;  ///< tiles that `squares` has
};
static_assert(sizeof(GemmChainProduct) == 256, "layout");

/// Of x of a product with k values a row, as the kernel makes it ready.
constexpr long long GemmChainXBytes(int tile_m, int k) {
  return static_cast<long long>(GemmQKTiles(k)) * tile_m * (2 * kGemmQTileK + 4);
}

/// Words that CTAs count in: of each product those that have their part of x ready, and those that have ended it;
/// and whether one has given up.
inline constexpr int kChainFailed = 2 * kMostChainProducts;
inline constexpr int kChainWords = kChainFailed + 1;

struct GemmChainParams {
  GemmChainProduct products[kMostChainProducts];
  /// [kChainWords], zero before the launch and after it, but where a CTA has given up: then they have to be
  /// made zero again.
  unsigned int* words;
  /// x of the product that runs, as it lies in shared memory: of GemmChainXBytes, aligned to 128 bytes.
  unsigned char* x;
  unsigned int* alarm;         ///< in memory that the host sees: becomes 1 where a CTA gives up
  unsigned long long wait_ns;  ///< after which one does: y is not right then
  int count;                   ///< of products
};
static_assert(sizeof(GemmChainParams) == 1152, "layout");

}  // namespace tilewright::cuda
