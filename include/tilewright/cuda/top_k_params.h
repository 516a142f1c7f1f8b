#pragma once

// What a launch of a kernel of the family top_k consists of. The kernel includes this very file, so
// it is plain C++ without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (TopKChunks, rows, 1) CTAs.
//
// Fields of a KernelSpec that the family names itself:
//
//   param0  the most that the kernel finds: 1, for k = 1, or 64
//   param1, param2, param3  0

namespace tilewright::cuda {

/// ids[r][i] is the column of the i-th largest value of row r, values[r][i] that value; among equal
/// values the lowest column comes first, and -0 equals 0. Minus infinity excludes a column; behind
/// the last of the others, ids are -1 and values minus infinity. A row with NaN or plus infinity
/// anywhere has ids of -1 and values of NaN. All pointers are of device memory; strides in
/// elements; elements of a row are adjacent. Any alignment; 16-byte loads when every row of `in` is
/// aligned to 16 bytes.
///
/// `tokens`, `positions`, `turns` and `found` are null, or all given for k = 1: what a row leaves for
/// the next pass, as tilewright/top_k.h says. `found` may be of the host's memory, mapped for the
/// device; it has been written when the launch has ended.
struct TopKParams {
  const void* in;  ///< [rows][cols], type_a
  int* ids;        ///< [rows][k]
  float* values;   ///< [rows][k], or null
  /// [rows][TopKChunks][k]: what the CTAs of a row find; not used where a row has one chunk.
  unsigned long long* partials;
  unsigned int* arrivals;  ///< [rows], zero; every launch leaves them zero. As partials
  long long in_stride, ids_stride, values_stride;
  int rows;                ///< at most 65,535
  int cols;                ///< at most TopKMostCols(k)
  int k;                   ///< 1 to param0
  int found_turns;         ///< rows of found
  long long found_stride;  ///< between them
  int* tokens;             ///< [rows], or null
  int* positions;          ///< [rows], or null
  int* turns;              ///< [rows], or null
  int* found;              ///< [found_turns][rows], or null
};

/// Elements of a row that one CTA has in its registers.
inline constexpr int kTopKChunk = 4096;

/// CTAs of a row.
constexpr int TopKChunks(int cols) { return cols / kTopKChunk + (cols % kTopKChunk != 0 ? 1 : 0); }

/// The widest row: what its CTAs find, k each, is one chunk at most.
constexpr int TopKMostCols(int k) { return kTopKChunk / k * kTopKChunk; }

/// Bytes of TopKParams::partials and arrivals; 0 where they are not used.
constexpr unsigned long long TopKPartialBytes(int rows, int cols, int k) {
  const int chunks = TopKChunks(cols);
  return chunks == 1 ? 0
                     : 8ull * static_cast<unsigned>(rows) * static_cast<unsigned>(chunks) *
                           static_cast<unsigned>(k);
}
constexpr unsigned long long TopKArrivalBytes(int rows, int cols) {
  return TopKChunks(cols) == 1 ? 0 : 4ull * static_cast<unsigned>(rows);
}

}  // namespace tilewright::cuda
