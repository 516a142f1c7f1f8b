#pragma once

// Where tiles lie: the order of output tiles over the grid, and the elements of an operand tile in
// shared memory. Pure functions, seen by the kernels and by their tests on the host.

namespace tw {

/// The tile with number `index` of a `tiles_m` x `tiles_n` output, 0 <= index < tiles_m * tiles_n.
struct TileIndex {
  int m;
  int n;
};

/// Bands of `band` tile rows, within a band column by column: CTAs that run at the same time then
/// share rows of A and columns of B in L2. The last band may be lower.
constexpr TileIndex RasterTile(int index, int tiles_m, int tiles_n, int band) {
  const int band_tiles = band * tiles_n;
  const int first = index / band_tiles * band;
  const int rows = tiles_m - first < band ? tiles_m - first : band;
  const int within = index % band_tiles;
  return {first + within % rows, within / rows};
}

/// Byte offset of the 16-byte chunk `chunk` of line `line` in a tile of lines of `chunks` chunks (a
/// power of two). Chunks of a line are permuted so that eight consecutive lines have one chunk
/// number in eight different groups of four banks: ldmatrix, which reads eight lines at a time, and
/// 16-byte stores along a line then meet no bank conflict. The permutation repeats every eight
/// lines.
constexpr int TileOffset(int line, int chunk, int chunks) {
  const int swizzle = chunks >= 8 ? line & 7 : line / (8 / chunks) & (chunks - 1);
  return (line * chunks + (chunk ^ swizzle)) * 16;
}

}  // namespace tw
