#pragma once

// What a launch of a kernel of the families gemv_bf16, gemv_q, gemv_stream and gemv_int8 consists of. The
// kernels include this very file, so it is plain C++ without any other header, seen by the host
// compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads and as much dynamic shared memory
// as ArtifactData::launch of the compiled kernel says (more than 48 KiB has to be allowed for the
// function first); and (GemvGridX, GemvGridY, 1) CTAs. gemv_stream: GemvStreamSmem bytes, which may
// be fewer, and (GemvStreamGridX, m, 1) CTAs. gemv_int8: GemvInt8Smem bytes, which may be fewer, and
// (GemvStreamGridX, 1, 1) CTAs. There is no workspace, nothing has to be zeroed.
//
// Fields of a KernelSpec that the families name themselves:
//
//   param0  warps that share a row of W, each with a part of k; a divisor of `warps`; gemv_stream:
//           spans of 256 values that a warp copies at a time; gemv_int8: rows of W that a warp takes
//           at a time, half of them gate and half up with SpecEpilogue::kSwiGlu
//   param1  CTAs that a multiprocessor is to hold: bounds the registers; gemv_int8: of this launch
//           one, the others of the next
//   param2  gemv_stream and gemv_int8: 1: the rows of x are normalised (`norm`); else 0
//   param3  gemv_int8: 1: rows are copied by the copy engine, whole segments at multiples of 16 bytes
//           (sm_90 and newer); else 0
//   stages  gemv_bf16: reads of 16 bytes of a row that a lane has in flight; gemv_q: stages of the
//           ring in shared memory; gemv_stream and gemv_int8: of the ring of each warp
//   tile_k  gemv_int8: values of a row that a warp copies at a time; else 0

namespace tilewright::cuda {

/// y[m][n] = alpha * sum over k of x[m][k] * W[n][k], plus beta * c[m][n] where the spec's epilogue
/// is SpecEpilogue::kAdd. With SpecEpilogue::kSwiGlu the rows of W are kGemvGatedBlock of gate and
/// as many of up in turn, and y has n / 2 columns: silu(gate) * up. All pointers are of device memory. Strides of x, c and y are in elements,
/// of W in bytes. Grid of the launch: GemvGridX x GemvGridY x 1.
struct GemvParams {
  /// [m][k], type_a. Weights in blocks: every row aligned to four elements. Plain weights: to one;
  /// fast when x is aligned to four elements and W to 16 bytes in every row, element by element
  /// otherwise. gemv_stream: x and W aligned to 16 bytes in every row, k a multiple of eight.
  /// gemv_int8: x aligned to 16 bytes in every row.
  const void* x;
  const void* w;  ///< [n][k], type_b; blocks: every row aligned to GemvRowAlignment(block bytes)
  const void* c;  ///< [m][n], type_c, or null
  void* y;        ///< [m][n], type_d; may be c
  long long ldx;  ///< at most kGemvMaxLdx
  long long ldc, ldy;
  long long w_row_bytes;
  int m;  ///< any; the grid covers it in steps of tile_m. gemv_int8: at most tile_m
  int n;
  int k;  ///< blocks: a multiple of the block
  float alpha, beta;
  /// Not 0: W and `norm` are not written by work that may still be queued, and are read ahead of it.
  int w_constant;
  /// With param2 = 1: [k] of f32, aligned to 16 bytes. A row of x stands for
  /// x[k] / sqrt(mean over k of x[k]^2 + epsilon) * norm[k], which only gemv_int8 rounds, to int8.
  const void* norm;
  float epsilon;
};

/// Eight rows of x are addressed by 31 bits.
inline constexpr long long kGemvMaxLdx = (1ll << 28) - 1;

/// Rows of gate, then of up, with SpecEpilogue::kSwiGlu.
inline constexpr int kGemvGatedBlock = 16;

constexpr unsigned int GemvGridX(int n, int tile_n) {
  return static_cast<unsigned int>((n + tile_n - 1) / tile_n);
}
constexpr unsigned int GemvGridY(int m, int tile_m) {
  return static_cast<unsigned int>((m + tile_m - 1) / tile_m);
}

/// Values that gemv_stream copies at a time: k is a multiple.
inline constexpr int kGemvStreamPack = 8;

/// CTAs of gemv_stream: what the GPU holds at once, each with a part of the `columns` of y.
constexpr unsigned int GemvStreamGridX(int columns, int sm_count, int ctas_per_sm) {
  const int held = sm_count * ctas_per_sm;
  return static_cast<unsigned int>(columns < held ? columns : held);
}
/// Dynamic shared memory of gemv_stream: the rings of all warps and a row of x, in whole segments. With
/// `norm` the row is f32, with the sum of the squares of each 32 values.
constexpr unsigned int GemvStreamSmem(int k, int x_bytes, int warps, int spans, int stages,
                                      bool norm = false) {
  const int segment = 256 * spans, values = (k + segment - 1) / segment * segment;
  return static_cast<unsigned int>(warps * stages * segment * 2 +
                                   (norm ? values * 4 + values / 8 : values * x_bytes));
}

/// Bytes of gemv_int8 in shared memory: of one row of W in a stage, as it lies within 16 aligned
/// bytes; and of one row of x, a byte for each value, a factor and a sum for each 32, and for rows that
/// are normalised the sum of the squares of each 32.
constexpr int GemvInt8RowBytes(int segment_bytes, int row_alignment) {
  return (segment_bytes + 16 - row_alignment + 15) / 16 * 16;
}
constexpr int GemvInt8XBytes(int values, bool norm) {
  return values + values / 32 * (norm ? 12 : 8);
}

/// What decides the shared memory of gemv_int8, beside k.
struct GemvInt8Layout {
  int tile_m = 1;
  int tile_k = 0;  ///< values of a segment
  int turn =
      0;  ///< values that the lanes of a warp multiply at a time; tile_k: whole turns, or one row
  int row_bytes = 0;  ///< GemvInt8RowBytes
  int rows = 1, warps = 1, stages = 2;
  bool norm = false;  ///< param2
  bool bulk = false;  ///< param3: an mbarrier for each stage of each warp
};
/// Dynamic shared memory of gemv_int8: the rings of all warps and the rows of x, in whole segments.
constexpr unsigned int GemvInt8Smem(const GemvInt8Layout& layout, int k) {
  const int step = layout.tile_k < layout.turn ? layout.turn : layout.tile_k;
  const int values = (k + step - 1) / step * step;
  return static_cast<unsigned int>(layout.warps * layout.stages * layout.rows * layout.row_bytes +
                                   layout.tile_m * GemvInt8XBytes(values, layout.norm) +
                                   (layout.bulk ? layout.warps * layout.stages * 8 : 0));
}

/// What the address of every row of W must be a multiple of, by the bytes of a block: 144 is q4_K,
/// 20 is q4_1, the others are made of 16-bit units.
constexpr int GemvRowAlignment(int block_bytes) {
  return block_bytes % 16 == 0 ? 16 : block_bytes % 4 == 0 ? 4 : 2;
}

}  // namespace tilewright::cuda
