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
// gemm_mma without splits and gemm_hopper without shares have no workspace: nothing has to be zeroed.
//
// Fields of a KernelSpec that the families name themselves:
//
//   field   gemm_mma                           gemm_hopper
//   param0  warps over the rows of the tile    tile rows of a raster band
//   param1  tile rows of a raster band         CTAs that a multiprocessor is to hold, 1 or 2
//   param2  0                                  how output tiles are divided, GemmHopperWalk
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

/// Parts in which `cluster_m` CTAs fetch a common tile of a column-major B, whole eights of its rows: one for
/// each where that comes out even, else for the first half of them, or the first.
constexpr int GemmHopperPartsOfB(int tile_n, int cluster_m) {
  int parts = cluster_m > 1 ? cluster_m : 1;
  while (parts > 1 && tile_n % (8 * parts) != 0) parts /= 2;
  return parts;
}

/// How the CTAs of gemm_hopper divide the output tiles (param2).
enum GemmHopperWalk : int {
  kGemmHopperInTurn = 0,  ///< a CTA takes every so manyth tile, its warpgroups rows of one tile
  /// The same, but tiles that would leave multiprocessors idle in the last round are divided along k into
  /// equal shares, one for each CTA (GemmHopperShares).
  kGemmHopperByShares = 1,
  /// The two warpgroups that multiply take whole tiles in turn, so that one stores while the other
  /// multiplies.
  kGemmHopperPingPong = 2,
};

/// The first `tiles` output tiles of the raster are divided into `count` shares, each of them 1/count of
/// all their steps of k: a share is the end of one tile, the begin of the next, or a part of one.
struct GemmHopperShares {
  int tiles;
  int count;  ///< at least `tiles`
};

/// Where share `share` begins, in steps of k over all divided tiles of `k_tiles` each; that of number
/// `count` is where the last ends. Parts of one or two steps are not worth a CTA that waits for their sums.
constexpr int GemmHopperShareBegin(const GemmHopperShares& shares, int k_tiles, int share) {
  constexpr int kWorthless = 2;
  const unsigned int steps = static_cast<unsigned int>(shares.tiles * k_tiles);
  const int begin = static_cast<int>(steps * static_cast<unsigned int>(share) /
                                     static_cast<unsigned int>(shares.count));
  const int within = begin % k_tiles;
  if (within <= kWorthless) return begin - within;
  return k_tiles - within <= kWorthless ? begin + k_tiles - within : begin;
}

/// gemm_hopper. Addresses of A and B are multiples of 16 bytes, lda and ldb of 8 elements. The maps
/// describe A, B and D: rank 2, the contiguous dimension first, interleave none, element strides 1,
/// swizzle 128B, L2 promotion 256B, fill with zeros outside.
///
///   map  global size         box
///   a    k, m (row-major)    64, GemmHopperBoxRows
///        m, k (column-major) 64, 64
///   b    k, n (column-major) 64, tile_n / GemmHopperPartsOfB
///        n, k (row-major)    64, 64
///   d    n, m                128 bytes, 64
///
/// That of D is read only where d, its leading dimension and n are multiples of 16 bytes; elsewhere
/// its bytes are ignored.
///
/// With kGemmHopperByShares the first `shares.tiles` output tiles are computed by `shares.count` CTAs
/// (clusters, of kernels with cluster_m or cluster_n), as many k-tiles each: sums of a part of k lie in
/// `partials` until the last CTA of a tile has come, which adds them up in the order of k.
struct GemmHopperParams {
  TensorMap a;
  TensorMap b;
  TensorMap d;
  GemmOutput out;
  GemmHopperShares shares;  ///< GemmHopperSharesOf; 0 where none are made
  /// GemmHopperPartials of [tile_m * tile_n], aligned to 16 bytes: sums as the threads hold them
  float* partials;
  unsigned int* arrivals;  ///< GemmHopperArrivals: zero before the first launch and after each
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
  int walk;         ///< param2, a GemmHopperWalk
};

/// CTAs of a cluster that take tiles beside or below each other.
constexpr int GemmHopperPeers(const GemmHopperTile& tile) {
  return (tile.cluster_m > 1 ? tile.cluster_m : 1) * (tile.cluster_n > 1 ? tile.cluster_n : 1);
}

/// Output tiles of a gemm_hopper kernel, those of a cluster counted as one.
constexpr long long GemmHopperTiles(int m, int n, const GemmHopperTile& tile) {
  return GemmTiles(m, n, tile.tile_m * (tile.cluster_m > 1 ? tile.cluster_m : 1),
                   tile.tile_n * (tile.cluster_n > 1 ? tile.cluster_n : 1));
}

/// As many of those as run at once.
constexpr long long GemmHopperResident(const GemmHopperTile& tile, int sm_count) {
  const long long fit = static_cast<long long>(sm_count) * tile.ctas_per_sm / GemmHopperPeers(tile);
  return fit < 1 ? 1 : fit;
}

/// Which tiles are divided and how: those of the last, incomplete round, among as many CTAs as there are.
/// Where a whole number of CTAs for each tile leaves few without work, that: all of them then go through k
/// side by side, and the L2 cache gives a line once for several. No tile has more than 8 of them and no
/// share is shorter than 8 k-tiles of 64. None where that would save fewer than 4 k-tiles, about what it
/// takes to add up the parts.
constexpr GemmHopperShares GemmHopperSharesOf(int m, int n, int k, const GemmHopperTile& tile,
                                              int sm_count) {
  constexpr long long kMostOfATile = 8, kShortest = 8, kLeastGain = 4, kMostCount = 1024;
  const long long resident = GemmHopperResident(tile, sm_count);
  const long long tiles = GemmHopperTiles(m, n, tile) % resident;
  const long long k_tiles = (k - 1LL) / 64 + 1, steps = tiles * k_tiles;
  // Products of steps and shares are counted in 32 bits.
  if (tile.walk != kGemmHopperByShares || tiles == 0 || steps > (1LL << 32) / kMostCount) return {};
  long long count = resident < kMostCount ? resident : kMostCount;
  count = count < kMostOfATile * tiles ? count : kMostOfATile * tiles;
  count = count < steps / kShortest ? count : steps / kShortest;
  const long long whole = count / tiles * tiles;
  if (5 * whole >= 4 * count) count = whole;
  if (count < tiles || k_tiles - (steps - 1) / count - 1 < kLeastGain) return {};
  return {static_cast<int>(tiles), static_cast<int>(count)};
}

/// Tiles of sums in the workspace: one for every part of a tile that a CTA computes, with number share +
/// tile among those of its CTA's number in the cluster.
constexpr long long GemmHopperPartials(const GemmHopperTile& tile, const GemmHopperShares& shares) {
  return shares.count == 0 ? 0 : (shares.count + shares.tiles - 1LL) * GemmHopperPeers(tile);
}

/// Counters in the workspace: one for every divided tile and warpgroup that multiplies, at most two.
constexpr long long GemmHopperArrivals(const GemmHopperTile& tile, const GemmHopperShares& shares) {
  return 2LL * shares.tiles * GemmHopperPeers(tile);
}

/// Grid x of gemm_hopper: as many CTAs as run at once on `sm_count` multiprocessors, at most one
/// for each output tile or share, a multiple of the cluster. They take the tiles in turn, so that a smaller
/// multiple of the cluster computes the same, more slowly, but not fewer than there are shares. Grid y is
/// cluster_n * split_k, and grid x counts so many CTAs as one; where CTAs share tiles of split_k none of
/// them takes a second one.
constexpr unsigned int GemmHopperGridX(int m, int n, int k, const GemmHopperTile& tile,
                                       int sm_count) {
  const long long cluster = tile.cluster_m > 1 ? tile.cluster_m : 1;
  const long long tiles = GemmHopperTiles(m, n, tile);
  if (tile.split_k > 1) return static_cast<unsigned int>(tiles);
  const long long resident = GemmHopperResident(tile, sm_count);
  const long long shares = GemmHopperSharesOf(m, n, k, tile, sm_count).count;
  const long long ctas = tiles < resident ? (tiles > shares ? tiles : shares) : resident;
  return static_cast<unsigned int>(ctas * cluster);
}

}  // namespace tilewright::cuda
