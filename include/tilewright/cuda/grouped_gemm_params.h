#pragma once

#include "tilewright/cuda/gemm_params.h"
#include "tilewright/cuda/gemm_q_params.h"
#include "tilewright/cuda/gemv_params.h"

// What a launch of a kernel of the families gemv_int8_grouped, gemv_q_grouped, gemv_stream_grouped,
// gemm_q_grouped and gemm_simt_grouped consists of: products of rows in groups, each with a matrix of
// its own (the experts of a sparse model). The kernels include this very file, so it is plain C++,
// seen by the host compiler and by NVRTC.
//
// Each is the kernel of the family without "_grouped", with the same fields of its spec, threads and
// dynamic shared memory, behind a search for the group. A launch has one parameter: the block of
// that family with the groups behind it. There is no workspace, nothing has to be zeroed.
//
//   gemv_*   grid (x of the dense launch with one row, rows of y, 1): a row of CTAs for each row of y;
//            with gemv_int8 and gemv_stream x is any number up to that
//   gemm_*   grid (GroupedTiles x columns of tiles, 1, 1)
//
// The `product` of a block is that of all rows of y with the matrix of group 0: no row of it is added
// to another (beta is not read), gemv_*'s m is ignored, gemm_q's splits is 1.

namespace tilewright::cuda {

/// Which rows have which matrix. Pointers are of device memory, aligned to their elements, and may be
/// written by the kernels in front.
struct GemmGroups {
  /// [count + 1], ascending from 0 to the rows of y: those from offsets[g] to offsets[g + 1] have
  /// matrix g. Rows that none has by that are left out; no other number makes a kernel read or write
  /// outside of the operands.
  const int* offsets;
  /// [rows of y]: the row of x for each of them, which must be one; null: that of the same number.
  const int* sources;
  long long w_group_bytes;  ///< from one matrix to the next
  int count;                ///< 1 or more
  int reserved;             // 0
};

struct GroupedGemvParams {
  GemvParams product;
  GemmGroups groups;
};
struct GroupedGemmQParams {
  GemmQParams product;
  GemmGroups groups;
};
struct GroupedGemmSimtParams {
  GemmMmaParams product;
  GemmGroups groups;
};

/// The most tiles of tile_m rows that `rows` rows in `count` groups can have.
constexpr long long GroupedTiles(int rows, int count, int tile_m) {
  const long long used = rows < count ? rows : count;
  return (rows + used * (tile_m - 1)) / tile_m;
}

}  // namespace tilewright::cuda
