#pragma once

// What a launch of a kernel of the families gemm_mma and gemm_hopper consists of: the parameter
// block, byte for byte, and the grid. The kernels include this very file, so it is plain C++
// without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads and as much dynamic shared memory
// as ArtifactData::launch of the compiled kernel says (more than 48 KiB has to be allowed for the
// function first); and (grid x, 1, 1) CTAs with the x of the functions below, of gemm_hopper
// (grid x, cluster_n * split_k, 1), each of the two at least 1. A cluster is part of the kernel: no
// launch attribute.
// gemm_hopper has no workspace, nor has gemm_mma without splits: nothing has to be zeroed.
//
// Fields of a KernelSpec that the families name themselves:
//
//   field   gemm_mma                           gemm_hopper
//   param0  warps over the rows of the tile    tile rows of a raster band
//   param1  tile rows of a raster band         CTAs that a multiprocessor is to hold, 1 or 2
//   param2  0                                  0
//   param3  0                                  0
//
// A raster band orders the output tiles for L2 and changes no result.

namespace tilewright::cuda {

/// d[m][n] = alpha * (a b)[m][n], with SpecEpilogue::kAdd + beta * c[m][n]. d and c are row-major
/// with leading dimensions in elements, at least n. Nothing outside of m x n is read or written. c
/// is read only with kAdd and beta != 0; it may be d itself (same type and leading dimension), else
/// it must not overlap d. Stores are 16 bytes wide where d is a multiple of 16 bytes and ldd *
/// sizeof(d) is too; anything else is correct and slower.
struct GemmOutput {
  const void* c;
  void* d;
  long long ldc;
  long long ldd;
  int m;
  int n;
  int k;
  float alpha;
  float beta;
  int reserved;  // 0
};
static_assert(sizeof(GemmOutput) == 56, "layout");

/// gemm_mma. Leading dimensions in elements, at least the extent of the contiguous dimension: lda
/// >= k for a row-major A ([m][k], k contiguous), >= m for a column-major one; ldb >= k for a
/// column-major B ([n][k] in memory), >= n for a row-major one. An operand whose address is a
/// multiple of 16 and whose leading dimension is a multiple of 8 is copied 16 bytes at a time,
/// another one element by element.
///
/// splits > 1: as many CTAs share an output tile, each with a part of k, and the last of them to
/// arrive adds up the sums of all, in the order of k: the same launch gives the same bits. There may be
/// as many splits as k has steps of tile_k, and only of tiles that GemmMmaSplitsK says. gemm_simt, whose
/// parameters these are too, makes none.
struct GemmMmaParams {
  const void* a;
  const void* b;
  long long lda;
  long long ldb;
  GemmOutput out;
  /// [tiles][splits][tile_m * tile_n], aligned to 16 bytes: sums as the threads hold them
  float* partials;
  unsigned int* arrivals;  ///< [tiles]: zeroed before the first launch, left at zero by every one
  int splits;              ///< 0 or 1: one CTA for each output tile, neither of the two is used
  int reserved;            // 0
};
static_assert(sizeof(GemmMmaParams) == 112, "layout");

/// A CUtensorMap as cuTensorMapEncodeTiled fills it, opaque here.
struct alignas(128) TensorMap {
  unsigned long long opaque[16];
};
static_assert(sizeof(TensorMap) == 128, "layout");

/// Rows of A that are fetched for an output tile, of a row-major A: of the last tile in the column what is
/// outside of m comes as zeros, but a tile that is all there is has no use for more than a few of them.
/// By each of `cluster_n` CTAs that have a tile of A in common.
constexpr int GemmHopperBoxRows(int m, int tile_m, int cluster_n = 1) {
  const int rows = m < tile_m ? m : tile_m;
  return (rows + 8 * cluster_n - 1) / (8 * cluster_n) * 8;
}

/// gemm_hopper. Addresses of A and B are multiples of 16 bytes, lda and ldb of 8 elements. The maps
/// describe A, B and D: rank 2, the contiguous dimension first, interleave none, element strides 1,
/// swizzle 128B, L2 promotion 256B, fill with zeros outside.
///
///   map  global size         box
///   a    k, m (row-major)    64, GemmHopperBoxRows
///        m, k (column-major) 64, 64
///   b    k, n (column-major) 64, tile_n / CTAs of a cluster
///        n, k (row-major)    64, 64
///   d    n, m                128 bytes, 64
///
/// That of D is read only where d, its leading dimension and n are multiples of 16 bytes; elsewhere
/// its bytes are ignored.
struct GemmHopperParams {
  TensorMap a;
  TensorMap b;
  TensorMap d;
  GemmOutput out;
};
static_assert(sizeof(GemmHopperParams) == 512, "layout");

/// Output tiles of tile_m x tile_n that cover m x n. The kernels count them in an int: more than
/// 2^31 - 1024 cannot be launched.
constexpr long long GemmTiles(int m, int n, int tile_m, int tile_n) {
  return ((m - 1LL) / tile_m + 1) * ((n - 1LL) / tile_n + 1);
}

/// Whether CTAs of gemm_mma may share such a tile: more than 64 sums a thread leave no registers for it.
constexpr bool GemmMmaSplitsK(int tile_m, int tile_n, int warps) {
  return tile_m * tile_n <= 64 * 32 * warps;
}

/// Grid x of gemm_mma: `splits` CTAs for each output tile.
constexpr unsigned int GemmMmaGridX(int m, int n, int tile_m, int tile_n, int splits = 1) {
  return static_cast<unsigned int>(GemmTiles(m, n, tile_m, tile_n) * splits);
}

/// The fields of a gemm_hopper spec that decide its grid.
struct GemmHopperTile {
  int tile_m;
  int tile_n;
  int cluster_m;    ///< 0 or 1: no cluster
  int cluster_n;    ///< CTAs of a cluster with tiles beside each other; 0 or 1: none
  int split_k;      ///< CTAs of a cluster that share an output tile; 0 or 1: none do
  int ctas_per_sm;  ///< param1
};

/// Grid x of gemm_hopper: as many CTAs as run at once on `sm_count` multiprocessors, at most one
/// for each output tile, a multiple of the cluster. They take the tiles in turn, so that a smaller
/// multiple of the cluster computes the same, more slowly. Grid y is cluster_n * split_k, and grid x
/// counts so many CTAs as one; where CTAs share tiles none of them takes a second one.
constexpr unsigned int GemmHopperGridX(int m, int n, const GemmHopperTile& tile, int sm_count) {
  const int cluster = tile.cluster_m > 1 ? tile.cluster_m : 1;
  const int beside = tile.cluster_n > 1 ? tile.cluster_n : 1;
  const long long tiles = GemmTiles(m, n, tile.tile_m * cluster, tile.tile_n * beside);
  if (tile.split_k > 1) return static_cast<unsigned int>(tiles);
  const long long fit = static_cast<long long>(sm_count) * tile.ctas_per_sm / (cluster * beside);
  const long long resident = fit < 1 ? 1 : fit;
  return static_cast<unsigned int>((tiles < resident ? tiles : resident) * cluster);
}

}  // namespace tilewright::cuda
